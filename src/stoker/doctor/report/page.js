"use strict";
/* The page's behaviour: theme, copying, menu. Text goes in by textContent only. */
const root = document.documentElement;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const THEME = "stoker-doctor-theme";
root.classList.add("scripted");
try { // a page opened from a file may be denied a memory
  const kept = localStorage.getItem(THEME);
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
} catch { /* then it follows the system */ }
document.addEventListener("DOMContentLoaded", () => {
  const redraw = document.getElementById("tracks") ? overTime() : () => {};
  themeButton(redraw);
  copyButtons();
  currentPart();
});

function themeButton(redraw) {
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark()));
    button.setAttribute("aria-label", "Dark colours");
    redraw();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem(THEME, root.dataset.theme); } catch { /* not kept, but shown */ }
    show();
  });
  dark.addEventListener("change", show);
  show();
}

function copyButtons() {
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      let copied = true;
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch { // no right to the clipboard: mark the text, so that the keyboard can
        getSelection().selectAllChildren(source);
        copied = false;
      }
      button.textContent = copied ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

/* Marks in the menu which part one is reading. */
function currentPart() {
  const links = new Map([...document.querySelectorAll("header nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) {
      if (id === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-110px 0px -50% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}
