/* Painting: a function for each row of the drawings. */

function makePainters(scene) {
  const { data, end } = scene;
  const { steps, pauses, waits, moments } = data;

  /* The greatest length, but not so great that one long stall flattens the rest. */
  function capped(lengths) {
    const sorted = [...lengths].sort((a, b) => a - b);
    return Math.max(1, Math.min(sorted.at(-1) ?? 1, 3 * (sorted[Math.floor(sorted.length * 0.9)] ?? 1)));
  }
  const ceiling = capped(steps.longest);

  function text(brush, said, x, y, { align = "left", colour = scene.colours.quiet, limit = undefined } = {}) {
    brush.fillStyle = colour;
    brush.textAlign = align;
    brush.textBaseline = "middle";
    if (limit === undefined || brush.measureText(said).width <= limit) brush.fillText(said, x, y);
  }
  function within(track, height, paintInside, top = 0) {
    track.brush.save();
    track.brush.beginPath();
    track.brush.rect(scene.left(), top, scene.plotWidth(track), height);
    track.brush.clip();
    paintInside(track.brush);
    track.brush.restore();
  }
  function hatch(brush, x, y, width, height, colour) {
    brush.save();
    brush.beginPath();
    brush.rect(x, y, width, height);
    brush.clip();
    brush.strokeStyle = colour;
    brush.globalAlpha *= 0.55;
    brush.lineWidth = 1;
    brush.beginPath();
    const from = Math.max(x, scene.left()) - height, to = Math.min(x + width, brush.canvas.clientWidth);
    for (let at = Math.floor(from / 6) * 6; at < to; at += 6) {
      brush.moveTo(at, y + height);
      brush.lineTo(at + height, y);
    }
    brush.stroke();
    brush.restore();
  }
  function timeAxis(track, bottom) {
    for (const value of ticks(scene.shown.begin, scene.shown.end, scene.plotWidth(track) / 90, CLOCK_STEPS)) {
      const x = Math.round(scene.toX(track, value)) + 0.5;
      track.brush.fillStyle = scene.colours.line;
      track.brush.fillRect(x, bottom, 1, 4);
      const align = x > track.width - 30 ? "right" : x < scene.left() + 16 ? "left" : "center";
      text(track.brush, value === 0 ? "0" : clock(value), x, bottom + 12, { align });
    }
  }
  function valueAxis(track, top, bottom, limit, said, values = ticks(0, limit, 4)) {
    for (const value of values) {
      const y = Math.round(bottom - (value / limit) * (bottom - top)) + 0.5;
      track.brush.fillStyle = scene.colours.line;
      track.brush.fillRect(scene.left(), y, scene.plotWidth(track), 1);
      text(track.brush, value === 0 ? "0" : rounded(said(value)), scene.left() - 6, y, { align: "right" });
    }
  }
  function background(track, top, height, labelled) {
    const tints = { warmup: scene.colours.other, host: scene.colours.forward, device: scene.colours.gain };
    within(track, height, (brush) => {
      for (const span of data.phases) {
        const [from, to] = [scene.toX(track, span.begin), scene.toX(track, span.end)];
        if (tints[span.phase]) {
          brush.globalAlpha = 0.11;
          brush.fillStyle = tints[span.phase];
          brush.fillRect(from, top, to - from, height);
          brush.globalAlpha = 1;
        }
        const visible = Math.max(from, scene.left());
        if (labelled) text(brush, PHASE_NAMES[span.phase], visible + 5, top + 9, { limit: Math.min(to, track.width) - visible - 8 });
      }
      for (const pause of pauses) {
        const from = scene.toX(track, pause.begin), width = Math.max(1, scene.toX(track, pause.end) - from);
        hatch(brush, from, top, width, height, scene.colours.other);
        if (labelled) text(brush, pause.kind, from + 5, top + 22, { limit: width - 8, colour: scene.colours.ink });
      }
    }, top);
  }
  /* Steps in sight as bars at least a pixel wide, those that would be narrower joined: mean and longest. */
  function bars(track) {
    const found = [];
    let last = null;
    for (let group = search(steps.end, scene.shown.begin); group < steps.first.length && steps.begin[group] < scene.shown.end; group++) {
      const from = scene.toX(track, steps.begin[group]), to = scene.toX(track, steps.end[group]);
      if (last && to - last.from < 2) {
        last.to = to;
        last.groups.push(group);
      } else found.push(last = { from, to, groups: [group] });
    }
    return found;
  }
  function paintSteps(track) {
    const { brush, height } = track;
    const [top, bottom] = [34, height - 24];
    background(track, 0, bottom, true);
    const inSight = bars(track);
    const limit = capped(inSight.flatMap((bar) => bar.groups.map((group) => steps.longest[group]))) * 1.06;
    valueAxis(track, top, bottom, limit, duration);
    within(track, bottom, () => {
      for (const bar of inSight) {
        const width = Math.max(1, bar.to - bar.from - (bar.to - bar.from > 5 ? 1 : 0));
        const total = bar.groups.reduce((sum, group) => sum + steps.count[group], 0);
        const peak = Math.max(...bar.groups.map((group) => steps.longest[group]));
        const scale = (bottom - top) / limit;
        brush.globalAlpha = 0.3;
        brush.fillStyle = scene.colours.other;
        brush.fillRect(bar.from, bottom - Math.min(peak, limit) * scale, width, Math.min(peak, limit) * scale);
        brush.globalAlpha = 1;
        let base = 0;
        data.stages.forEach((stage, i) => {
          const mean = bar.groups.reduce((sum, group) => sum + steps.stages[i][group] * steps.count[group], 0) / total;
          const from = Math.min(base, limit), to = Math.min(base + mean, limit);
          brush.fillStyle = scene.colours[stage];
          brush.fillRect(bar.from, bottom - to * scale, width, (to - from) * scale);
          base += mean;
        });
        if (peak > limit) { // cut: two strokes through the bar
          brush.fillStyle = scene.colours.card;
          brush.fillRect(bar.from, top + 8, width, 2);
          brush.fillRect(bar.from, top + 12, width, 2);
        }
      }
      for (const group of steps.stalls) {
        const x = scene.toX(track, scene.middleOf(group));
        brush.fillStyle = scene.colours.wait;
        brush.beginPath();
        brush.moveTo(x - 5, top - 10);
        brush.lineTo(x + 5, top - 10);
        brush.lineTo(x, top - 2);
        brush.fill();
        const room = scene.toX(track, steps.end[group]) - scene.toX(track, steps.begin[group]);
        text(brush, duration(steps.longest[group]), x, top - 18, { align: "center", colour: scene.colours.ink, limit: room });
      }
      for (const event of data.events) {
        const x = scene.toX(track, event.time);
        brush.strokeStyle = event.kind === "crash" ? scene.colours.wait : scene.colours.quiet;
        brush.setLineDash([2, 3]);
        brush.beginPath();
        brush.moveTo(x, 0);
        brush.lineTo(x, bottom);
        brush.stroke();
        brush.setLineDash([]);
      }
      if (scene.chosen >= 0) {
        const from = scene.toX(track, steps.begin[scene.chosen]);
        brush.strokeStyle = scene.colours.focus;
        brush.lineWidth = 2;
        brush.strokeRect(from - 1, 1, Math.max(3, scene.toX(track, steps.end[scene.chosen]) - from + 1), bottom - 2);
      }
    });
    timeAxis(track, bottom);
  }
  function paintLanes(track) {
    const { brush, height } = track;
    background(track, 0, height, false);
    for (const row of scene.laneRows.rows) {
      if (row.head) text(brush, row.head, scene.left(), row.top + row.height / 2, { colour: scene.colours.ink });
      else if (row.height >= 10) text(brush, row.label, scene.left() - 6, row.top + row.height / 2, { align: "right" });
      if (!row.head) {
        brush.globalAlpha = 0.6;
        brush.fillStyle = scene.colours.sunk;
        brush.fillRect(scene.left(), row.top, scene.plotWidth(track), row.height);
        brush.globalAlpha = 1;
      }
      within(track, height, () => (row.lane ? paintLane(track, row) : row.head ? null : paintLoop(track, row)));
    }
  }
  function paintLoop(track, row) {
    const { brush } = track;
    const inSight = bars(track);
    const exact = waits.all && inSight.every((bar) => bar.groups.length === 1); // else: the share of waiting as a height
    for (const bar of inSight) {
      const width = Math.max(0.5, bar.to - bar.from - (bar.to - bar.from > 5 ? 1 : 0));
      const whole = bar.groups.reduce((sum, group) => sum + steps.mean[group] * steps.count[group], 0);
      const waiting = bar.groups.reduce((sum, group) => sum + steps.stages[0][group] * steps.count[group], 0);
      const share = exact ? 0 : Math.min(1, waiting / Math.max(1, whole)) * row.height;
      brush.globalAlpha = 0.45;
      brush.fillStyle = scene.colours.gain;
      brush.fillRect(bar.from, row.top, width, row.height - share);
      brush.globalAlpha = 1;
      brush.fillStyle = scene.colours.wait;
      brush.fillRect(bar.from, row.top + row.height - share, width, share);
    }
    for (let i = exact ? search(waits.end, scene.shown.begin) : waits.end.length; i < waits.end.length && waits.begin[i] < scene.shown.end; i++) {
      const from = scene.toX(track, waits.begin[i]), width = scene.toX(track, waits.end[i]) - from;
      brush.fillStyle = [scene.colours.other, scene.colours.wait, scene.colours.blocked][waits.why[i]];
      brush.fillRect(from, row.top, width, row.height);
    }
    for (const pause of pauses) {
      const from = scene.toX(track, pause.begin);
      hatch(brush, from, row.top, scene.toX(track, pause.end) - from, row.height, scene.colours.ink);
    }
  }
  function paintLane(track, { lane, top, height }) {
    const { brush } = track;
    for (let i = search(lane.end, scene.shown.begin); i < lane.end.length && lane.begin[i] < scene.shown.end; i++) {
      const from = scene.toX(track, lane.begin[i]);
      const width = scene.toX(track, lane.end[i]) - from;
      const merged = lane.count[i] > 1; // then how full it is says how busy the worker was
      brush.globalAlpha = merged ? Math.min(1, 0.15 + 0.85 * (lane.busy[i] / Math.max(1, lane.end[i] - lane.begin[i]))) : 1;
      const parts = [[lane.fetch[i] - lane.transforms[i], scene.colours.load], [lane.transforms[i], scene.colours.transform], [lane.collate[i], scene.colours.collate]];
      brush.fillStyle = scene.colours.rest;
      const filled = !merged && width > 4 ? width - 1 : width;
      brush.fillRect(from, top, filled, height);
      let at = from;
      for (const [us, colour] of parts) {
        const share = (us / Math.max(1, lane.busy[i])) * filled;
        brush.fillStyle = colour;
        brush.fillRect(at, top, share, height);
        at += share;
      }
    }
    brush.globalAlpha = 1;
  }
  function area(track, values, limit, top, bottom, colour, alpha) {
    const { brush } = track;
    if (!values.length) return;
    brush.beginPath();
    const first = Math.max(0, search(moments.time, scene.shown.begin) - 1);
    const last = Math.min(values.length - 1, search(moments.time, scene.shown.end) + 1);
    const y = (i) => bottom - (values[i] / limit) * (bottom - top);
    brush.moveTo(scene.toX(track, moments.time[first]), bottom);
    for (let i = first; i <= last; i++) brush.lineTo(scene.toX(track, moments.time[i]), y(i));
    brush.lineTo(scene.toX(track, moments.time[last]), bottom);
    brush.globalAlpha = alpha;
    brush.fillStyle = colour;
    brush.fill();
    brush.globalAlpha = 1;
    brush.beginPath();
    for (let i = first; i <= last; i++) brush.lineTo(scene.toX(track, moments.time[i]), y(i));
    brush.strokeStyle = colour;
    brush.lineWidth = 1.5;
    brush.stroke();
  }
  function paintMemory(track) {
    const [top, bottom] = [8, track.height - 8];
    background(track, 0, track.height, false);
    const limit = Math.max(...moments.high, 1) * 1.08;
    valueAxis(track, top, bottom, limit, bytes, ticks(0, limit, 2));
    within(track, track.height, () => {
      area(track, moments.high, limit, top, bottom, scene.colours.memory, 0.2);
      area(track, moments.workers, limit, top, bottom, scene.colours.transform, 0.3);
    });
  }
  function paintCores(track) {
    const { brush } = track;
    const [top, bottom] = [8, 76];
    background(track, 0, bottom, false);
    const limit = Math.max(data.num_cores, ...moments.cpu_high) * 1.04;
    valueAxis(track, top, bottom, limit, String, [0, data.num_cores]);
    within(track, track.height, () => {
      area(track, moments.cpu_high, limit, top, bottom, scene.colours.cpu, 0.22);
      if (moments.accelerator.length) area(track, moments.accelerator.map((use) => ((use ?? 0) / 100) * data.num_cores), limit, top, bottom, scene.colours.ink, 0);
      moments.cores.forEach((use, core) => {
        const y = 84 + core * (scene.coreHeight + 1);
        brush.fillStyle = scene.colours.sunk;
        brush.fillRect(scene.left(), y, scene.plotWidth(track), scene.coreHeight);
        brush.fillStyle = scene.colours.cause;
        for (let i = Math.max(0, search(moments.time, scene.shown.begin) - 1); i < use.length && moments.time[i] < scene.shown.end; i++) {
          const from = scene.toX(track, moments.time[i]);
          const to = scene.toX(track, moments.time[i + 1] ?? end);
          brush.globalAlpha = Math.min(1, use[i] / 100);
          brush.fillRect(from, y, to - from + 0.3, scene.coreHeight);
        }
        brush.globalAlpha = 1;
      });
    });
    if (moments.cores.length <= 16) {
      moments.cores.forEach((_, core) => text(brush, `core ${moments.core_names[core]}`, scene.left() - 6, 84 + core * (scene.coreHeight + 1) + scene.coreHeight / 2, { align: "right" }));
    }
    timeAxis(track, track.height - 22);
  }
  function paintOverview(track) {
    const { brush, height } = track;
    const whole = (us) => scene.left() + (us / end) * scene.plotWidth(track);
    brush.fillStyle = scene.colours.sunk;
    brush.fillRect(scene.left(), 0, scene.plotWidth(track), height);
    steps.first.forEach((_, group) => {
      const from = whole(steps.begin[group]), width = Math.max(0.5, whole(steps.end[group]) - from);
      const tall = Math.min(1, steps.longest[group] / ceiling) * (height - 6);
      const wait = steps.stages[0][group] / Math.max(1, steps.mean[group]);
      brush.fillStyle = scene.colours.other;
      brush.fillRect(from, height - tall, width, tall);
      brush.fillStyle = scene.colours.wait;
      brush.fillRect(from, height - tall * wait, width, tall * wait);
    });
    const from = whole(scene.shown.begin), to = whole(scene.shown.end);
    brush.globalAlpha = 0.72;
    brush.fillStyle = scene.colours.card;
    brush.fillRect(scene.left(), 0, from - scene.left(), height);
    brush.fillRect(to, 0, scene.left() + scene.plotWidth(track) - to, height);
    brush.globalAlpha = 1;
    brush.strokeStyle = scene.colours.focus;
    brush.lineWidth = 2;
    brush.strokeRect(from + 1, 1, Math.max(2, to - from - 2), height - 2);
    brush.fillStyle = scene.colours.focus;
    for (const x of [from, to - 5]) brush.fillRect(x, height / 2 - 9, 5, 18);
  }
  function paintCursor(track) {
    const { brush, height } = track;
    if (scene.drag && scene.drag.track.name !== "overview") {
      const [from, to] = [scene.drag.from, scene.drag.to].sort((a, b) => a - b);
      brush.globalAlpha = 0.2;
      brush.fillStyle = scene.colours.focus;
      brush.fillRect(from, 0, to - from, height);
      brush.globalAlpha = 1;
    }
    const time = scene.hover ? scene.hover.time : scene.focusTime();
    if (time === undefined || time < scene.shown.begin || time > scene.shown.end) return;
    brush.fillStyle = scene.colours.ink;
    brush.globalAlpha = 0.55;
    brush.fillRect(Math.round(scene.toX(track, time)), 0, 1, height);
    brush.globalAlpha = 1;
  }

  return { overview: paintOverview, steps: paintSteps, lanes: paintLanes, memory: paintMemory, cores: paintCores, cursor: paintCursor };
}
