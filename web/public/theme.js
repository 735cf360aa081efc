// Before the first paint: the theme that the reader chose here, if any.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is switched off: the system's theme it is
}
