# Placeholder until the package export is written.
