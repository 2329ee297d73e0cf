// Before anything is drawn, so that a dark page never flashes white. Not a module: those wait for the document.
"use strict";
{
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("oddnode-theme"); } catch { return null; } };
  const apply = () => { root.dataset.theme = stored() ?? (system.matches ? "dark" : "light"); };
  apply();
  system.addEventListener("change", apply);
}
