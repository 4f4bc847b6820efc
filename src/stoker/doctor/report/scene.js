/* What the drawings share: the run's data, what is in sight, and where a time lies on the screen. */

function makeScene(data) {
  const { steps, lanes, moments } = data;
  const tracks = {};
  for (const canvas of document.querySelectorAll("#tracks canvas")) {
    const name = canvas.id.replace("track-", "");
    tracks[name] = { name, canvas, brush: canvas.getContext("2d"), width: 0, height: 0 };
  }
  const end = Math.max(1, data.end);
  const scene = {
    data, end, tracks,
    view: { begin: 0, end }, // what was asked for
    shown: { begin: 0, end }, // what is drawn; follows the view, softly
    chosen: -1, // step group under the keyboard
    hover: null, drag: null, colours: {},
    laneRows: layLanes(lanes),
    coreHeight: moments.cores.length > 16 ? 5 : moments.cores.length > 8 ? 8 : 12,
    left: () => (tracks.overview.width < 480 ? 54 : 60),
    plotWidth: (track) => track.width - scene.left() - 8,
    toX: (track, us) => scene.left() + ((us - scene.shown.begin) / (scene.shown.end - scene.shown.begin)) * scene.plotWidth(track),
    toTime: (track, x) => scene.shown.begin + ((x - scene.left()) / scene.plotWidth(track)) * (scene.shown.end - scene.shown.begin),
    middleOf: (group) => (steps.begin[group] + steps.end[group]) / 2,
    focusTime: () => (scene.chosen >= 0 ? scene.middleOf(scene.chosen) : undefined),
    stepAt(time) {
      const group = search(steps.end, time);
      return group < steps.end.length && steps.begin[group] <= time ? group : -1;
    },
  };
  if (tracks.lanes) tracks.lanes.canvas.style.height = `${scene.laneRows.height}px`;
  if (tracks.cores) tracks.cores.canvas.style.height = `${84 + moments.cores.length * (scene.coreHeight + 1) + 22}px`;
  if (tracks.steps) tracks.steps.canvas.setAttribute("aria-valuemax", String(steps.first.length));
  return scene;
}

/* A head line for each loader, where there are several, and a row for each lane. */
function layLanes(lanes) {
  const rows = [{ label: "loop", lane: null }];
  let loader = null;
  const several = new Set(lanes.map((lane) => lane.loader)).size > 1;
  for (const lane of lanes) {
    if (several && lane.loader !== loader) rows.push({ head: lane.loader });
    loader = lane.loader;
    rows.push({ label: lane.label, lane });
  }
  const height = lanes.length > 24 ? 10 : lanes.length > 12 ? 14 : 20;
  let top = 4;
  for (const row of rows) {
    row.top = top;
    row.height = row.lane === null ? 20 : row.head ? 16 : height;
    top += row.height + 3;
  }
  return { rows, height: top + 2 };
}

/* Colours are said once, in the style; a canvas has to be told them. */
function readColours(scene) {
  const frame = document.getElementById("tracks");
  const probe = document.createElement("i");
  probe.hidden = true;
  frame.append(probe);
  scene.colours = {};
  for (const name of ["ink", "quiet", "line", "card", "sunk", "focus", "wait", "copy", "augment", "forward", "backward",
    "optimizer", "other", "load", "transform", "collate", "rest", "blocked", "memory", "cpu", "cause", "gain"]) {
    probe.style.color = `var(--${name})`;
    scene.colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}
