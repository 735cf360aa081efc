"""Engines and models that canopy plugs into: sglang, transformers. Nothing here imports them; see docs/integration.md."""
