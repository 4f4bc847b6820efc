/* The run over time: what is in sight, and what hands can do with it. */

function overTime() {
  const scene = makeScene(JSON.parse(document.getElementById("over-time").textContent));
  const { data, end, tracks, view } = scene;
  const { steps } = data;
  const words = makeWords(scene), painters = makePainters(scene);
  const frame = document.getElementById("tracks");
  const tooltip = document.getElementById("tooltip");
  let queued = false;

  function look(begin, finish, soft = true) {
    const shortest = Math.min(end, 500);
    const span = Math.min(end, Math.max(shortest, finish - begin));
    view.begin = Math.min(Math.max(0, begin), end - span);
    view.end = view.begin + span;
    frame.dataset.begin = String(Math.round(view.begin));
    frame.dataset.end = String(Math.round(view.end));
    if (!soft || still.matches) scene.shown = { ...view };
    draw();
  }
  function zoom(factor, around = (view.begin + view.end) / 2) {
    look(around - (around - view.begin) * factor, around + (view.end - around) * factor);
  }
  function choose(group) {
    if (!steps.first.length) return;
    scene.chosen = Math.min(Math.max(0, group), steps.first.length - 1);
    const [from, to] = [steps.begin[scene.chosen], steps.end[scene.chosen]];
    if (from < view.begin || to > view.end) {
      const span = Math.max(view.end - view.begin, (to - from) * 1.2);
      look((from + to - span) / 2, (from + to + span) / 2, false);
    }
    const canvas = tracks.steps.canvas;
    canvas.setAttribute("aria-valuenow", String(scene.chosen + 1));
    canvas.setAttribute("aria-valuetext", words.inWords(scene.chosen));
    const box = canvas.getBoundingClientRect();
    scene.hover = null;
    tell(words.describeStep(scene.chosen), box.left + scene.toX(tracks.steps, scene.middleOf(scene.chosen)), box.top + 40);
    draw();
  }
  function nextStall(direction) {
    const { stalls } = steps;
    if (!stalls.length) return;
    const at = scene.chosen >= 0 ? scene.chosen : direction > 0 ? -1 : steps.first.length;
    const following = direction > 0 ? stalls.find((group) => group > at) : stalls.findLast((group) => group < at);
    const group = following ?? (direction > 0 ? stalls[0] : stalls.at(-1));
    const span = Math.min(view.end - view.begin, Math.max(end / 12, (steps.end[group] - steps.begin[group]) * 6));
    look(scene.middleOf(group) - span / 2, scene.middleOf(group) + span / 2, false);
    choose(group);
  }
  function tell(what, x, y) {
    tooltip.hidden = !what;
    if (!what) return;
    tooltip.replaceChildren();
    const add = (name, text, parent = tooltip) => {
      const made = parent.appendChild(document.createElement(name));
      made.textContent = text;
      return made;
    };
    add("b", what.title);
    if (what.said) add("p", what.said);
    if (what.rows.length) {
      const table = add("table", "");
      for (const [name, figure, kind, share] of what.rows) {
        const row = add("tr", "", table);
        const cell = add("td", "", row);
        add("i", "", cell).style.background = scene.colours[kind];
        cell.append(name);
        add("td", figure, row);
        if (share) add("td", share, row);
      }
    }
    const box = tooltip.getBoundingClientRect();
    const beside = x + 16 + box.width > innerWidth - 8 ? x - box.width - 16 : x + 16;
    tooltip.style.left = `${Math.max(8, Math.min(beside, innerWidth - box.width - 8))}px`;
    tooltip.style.top = `${Math.max(8, Math.min(y + 14, innerHeight - box.height - 8))}px`;
  }
  function draw() {
    if (!queued) {
      queued = true;
      requestAnimationFrame(paint);
    }
  }
  function paint() {
    queued = false;
    const [gapBegin, gapEnd] = [view.begin - scene.shown.begin, view.end - scene.shown.end];
    const near = (view.end - view.begin) / 400;
    if (Math.abs(gapBegin) + Math.abs(gapEnd) < near) scene.shown = { ...view };
    else {
      scene.shown.begin += gapBegin * 0.35;
      scene.shown.end += gapEnd * 0.35;
      draw();
    }
    for (const track of Object.values(tracks)) {
      if (track.width === 0) continue;
      track.brush.clearRect(0, 0, track.width, track.height);
      track.brush.font = "11px system-ui, sans-serif";
      painters[track.name](track);
      if (track.name !== "overview") painters.cursor(track);
    }
  }

  /* -- hands -- */

  function place(event, track) {
    const box = track.canvas.getBoundingClientRect();
    const x = Math.min(Math.max(event.clientX - box.left, scene.left()), scene.left() + scene.plotWidth(track));
    return { x, y: event.clientY - box.top };
  }
  for (const track of Object.values(tracks)) {
    const { canvas } = track;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const { x } = place(event, track);
      scene.drag = { track, from: x, to: x, begin: view.begin, end: view.end };
      if (track.name === "overview") scene.drag.how = grip(track, x);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const { x, y } = place(event, track);
      if (scene.drag) {
        scene.drag.to = x;
        if (track.name === "overview") slide(track);
        tell(null);
      } else if (track.name !== "overview") {
        scene.hover = { time: scene.toTime(track, x) };
        tell(words.describe(track, scene.hover.time, y), event.clientX, event.clientY);
      }
      draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const done = scene.drag;
      scene.drag = null;
      if (!done || track.name === "overview") return draw();
      const [from, to] = [done.from, done.to].sort((a, b) => a - b);
      if (to - from > 6) look(scene.toTime(track, from), scene.toTime(track, to));
      else {
        const { x, y } = place(event, track);
        const group = scene.stepAt(scene.toTime(track, x));
        if (group >= 0) choose(group);
        tell(words.describe(track, scene.toTime(track, x), y), event.clientX, event.clientY);
      }
      draw();
    });
    canvas.addEventListener("pointercancel", () => { scene.drag = null; draw(); });
    canvas.addEventListener("pointerleave", () => { scene.hover = null; if (!scene.drag) tell(null); draw(); });
    canvas.addEventListener("dblclick", () => look(0, end));
    canvas.addEventListener("wheel", (event) => {
      const { x } = place(event, track);
      const span = view.end - view.begin;
      if (event.ctrlKey || event.metaKey) zoom(1.0015 ** event.deltaY, scene.toTime(track, x));
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = (event.deltaX / scene.plotWidth(track)) * span;
        look(view.begin + by, view.end + by, false);
      } else return; // the page scrolls
      event.preventDefault();
    }, { passive: false });
  }
  /* What a drag in the overview takes hold of: an edge of the window, the window, or nothing yet. */
  function grip(track, x) {
    const [from, to] = [view.begin, view.end].map((us) => scene.left() + (us / end) * scene.plotWidth(track));
    if (Math.abs(x - from) < 9) return "begin";
    if (Math.abs(x - to) < 9) return "end";
    return x > from && x < to && view.end - view.begin < end ? "move" : "new";
  }
  function slide(track) {
    const toWhole = (x) => ((x - scene.left()) / scene.plotWidth(track)) * end;
    const by = toWhole(scene.drag.to) - toWhole(scene.drag.from);
    if (scene.drag.how === "move") look(scene.drag.begin + by, scene.drag.end + by, false);
    else if (scene.drag.how === "begin") look(Math.min(scene.drag.begin + by, scene.drag.end - 500), scene.drag.end, false);
    else if (scene.drag.how === "end") look(scene.drag.begin, Math.max(scene.drag.end + by, scene.drag.begin + 500), false);
    else if (Math.abs(scene.drag.to - scene.drag.from) > 6) {
      const [from, to] = [scene.drag.from, scene.drag.to].sort((a, b) => a - b);
      look(toWhole(from), toWhole(to), false);
    }
  }
  const actions = {
    in: () => zoom(0.5, scene.focusTime()), out: () => zoom(2, scene.focusTime()), all: () => look(0, end), stall: () => nextStall(1),
  };
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => actions[button.dataset.action]());
    if (button.dataset.action === "stall") button.hidden = !steps.stalls.length;
  }
  tracks.steps?.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1;
    const first = Math.max(0, scene.stepAt(view.begin), search(steps.begin, view.begin));
    const moves = {
      ArrowRight: () => choose(scene.chosen < 0 ? first : scene.chosen + far),
      ArrowLeft: () => choose(scene.chosen < 0 ? first : scene.chosen - far),
      PageDown: () => choose(Math.max(0, scene.chosen) + 25),
      PageUp: () => choose(scene.chosen - 25),
      Home: () => choose(0),
      End: () => choose(steps.first.length - 1),
      "+": actions.in, "=": actions.in, "-": actions.out, "_": actions.out, 0: actions.all,
      Escape: () => { scene.chosen = -1; tell(null); look(0, end); },
      s: () => nextStall(1), S: () => nextStall(-1),
    };
    if (moves[event.key]) {
      event.preventDefault();
      moves[event.key]();
    }
  });
  tracks.steps?.canvas.addEventListener("blur", () => { if (!scene.hover) tell(null); });
  addEventListener("scroll", () => { if (!tooltip.hidden) tell(null); }, { passive: true });

  new ResizeObserver(() => {
    const ratio = devicePixelRatio || 1;
    for (const track of Object.values(tracks)) {
      const { clientWidth, clientHeight } = track.canvas;
      track.width = clientWidth;
      track.height = clientHeight;
      track.canvas.width = Math.round(clientWidth * ratio);
      track.canvas.height = Math.round(clientHeight * ratio);
      track.brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    paint();
  }).observe(frame);
  readColours(scene);
  look(0, end, false);
  return () => { readColours(scene); draw(); };
}
