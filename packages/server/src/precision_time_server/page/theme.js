// Before anything is painted: the theme that was chosen here, if one was. A plain script, so that it blocks.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the page follows the system.
}
