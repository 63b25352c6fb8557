"use strict";
// Fetches this page every two seconds and replaces <main>. Without it the page is static.
(() => {
  const EVERY = 2000;
  const slot = document.getElementById("refresh");
  const main = document.querySelector("main");
  if (!slot || !main) return;

  const state = document.createElement("span");
  state.setAttribute("role", "status");
  const button = document.createElement("button");
  button.type = "button";
  slot.append(state, button);

  let paused = recall();
  let timer = 0;

  function recall() {
    try { return sessionStorage.getItem("paused") === "yes"; } catch { return false; }
  }
  function remember() {
    try { sessionStorage.setItem("paused", paused ? "yes" : "no"); } catch { /* this page only */ }
  }
  // Screen readers announce changes only.
  function say(word, kind) {
    if (state.textContent !== word) state.textContent = word;
    state.className = kind;
  }
  function show() {
    button.textContent = paused ? "Resume" : "Pause";
    if (paused) say("Paused", "paused");
  }
  // A page may say that it does not change, or is too large to be fetched all the time.
  const still = main.querySelector("[data-still]");
  if (still) button.hidden = true;
  function plan() {
    clearTimeout(timer);
    if (still) return;
    if (!paused && !document.hidden) timer = setTimeout(load, EVERY);
  }

  // A text selection or a form control in use is left alone.
  function busy() {
    const selection = getSelection();
    const within = (node) => node && main.contains(node);
    return (selection && !selection.isCollapsed && within(selection.anchorNode))
      || (document.activeElement && document.activeElement.matches("main input, main select"));
  }
  function focused() {
    const at = document.activeElement;
    return at && main.contains(at) && at !== main ? at.id || at.getAttribute("href") : null;
  }
  function refocus(name) {
    if (!name) return;
    for (const node of main.querySelectorAll("a[href], [id]")) {
      if (node.id === name || node.getAttribute("href") === name) { node.focus({ preventScroll: true }); return; }
    }
  }
  function swap(fresh) {
    const name = focused();
    const open = new Set([...main.querySelectorAll("details[open][id]")].map((node) => node.id));
    const scrolled = [...main.querySelectorAll(".wide")].map((node) => node.scrollLeft);
    main.replaceChildren(...fresh.childNodes);
    addCopyButtons();
    for (const node of main.querySelectorAll("details[id]")) node.open = open.has(node.id) || node.open;
    main.querySelectorAll(".wide").forEach((node, i) => { node.scrollLeft = scrolled[i] || 0; });
    refocus(name);
  }

  // Commands can be copied where the browser lets a page write to the clipboard.
  function addCopyButtons() {
    if (!navigator.clipboard) return;
    for (const command of main.querySelectorAll(".command")) {
      const copy = document.createElement("button");
      copy.type = "button";
      copy.textContent = "Copy";
      copy.setAttribute("aria-label", `Copy ${command.textContent}`);
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(command.querySelector("code").textContent);
          copy.textContent = "Copied";
        } catch {
          copy.textContent = "Not copied";
        }
      });
      command.append(copy);
    }
  }

  async function load() {
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (!fresh) throw new Error("no page");
      if (page.documentElement.dataset.version !== document.documentElement.dataset.version) {
        location.reload();
        return;
      }
      if (!paused && !busy()) swap(fresh);
      if (!paused) say("Live", "live");
    } catch {
      if (!paused) say("No answer", "lost");
    }
    plan();
  }

  button.addEventListener("click", () => {
    paused = !paused;
    remember();
    show();
    if (paused) clearTimeout(timer); else load();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || paused || still) clearTimeout(timer); else load();
  });
  addCopyButtons();
  show();
  if (still) say("", ""); else if (!paused) say("Live", "live");
  plan();
})();
