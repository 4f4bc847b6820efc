/* What a point of the drawings means, in words: a title, a sentence, and rows of name, figure, colour, share. */

const STAGE_NAMES = {
  wait: "waiting for data", copy: "copy to device", augment: "augmentation", forward: "forward",
  backward: "backward", optimizer: "optimizer", other: "everything else",
};
const PHASE_NAMES = { warmup: "warm-up", normal: "as it is", host: "replay: batches ready", device: "replay: on the device" };

function makeWords(scene) {
  const { data } = scene;
  const { steps, pauses, waits, moments } = data;
  const phaseOrder = Object.keys(PHASE_NAMES);

  const numbering = (group) => (steps.count[group] > 1
    ? `Steps ${steps.first[group]}–${steps.first[group] + steps.count[group] - 1}` : `Step ${steps.first[group]}`);

  function inWords(group) {
    const parts = data.stages.map((stage, i) => [steps.stages[i][group], STAGE_NAMES[stage]]).filter(([us]) => us > 0);
    const stall = steps.stalls.includes(group) ? ", a stall" : "";
    return `${numbering(group)}, ${duration(steps.mean[group])}${stall}: ${parts.map(([us, name]) => `${name} ${duration(us)}`).join(", ")}`;
  }
  function describeStep(group) {
    const mean = steps.mean[group];
    const rows = data.stages.map((stage, i) => [STAGE_NAMES[stage], steps.stages[i][group], stage])
      .filter(([, us]) => us > 0)
      .map(([name, us, stage]) => [name, duration(us), stage, percent(us / mean)]);
    const said = [PHASE_NAMES[phaseOrder[steps.phase[group]]], `at ${duration(steps.begin[group])}`];
    if (steps.batches[group] > 1) said.push(`${steps.batches[group]} batches each`);
    if (steps.count[group] > 1) said.push(`from ${duration(steps.shortest[group])} to ${duration(steps.longest[group])}`);
    if (steps.stalls.includes(group)) said.push("a stall");
    return { title: `${numbering(group)}: ${duration(mean)}`, said: said.join(", "), rows };
  }
  function describeBatch(lane, index) {
    const [count, fetch, cpu, collate, transforms] = [lane.count, lane.fetch, lane.cpu, lane.collate, lane.transforms].map((column) => column[index]);
    const rest = lane.busy[index] - fetch - collate;
    const rows = [["loading", fetch - transforms, "load"], ["transforms", transforms, "transform"], ["collate", collate, "collate"], ["handing over", rest, "rest"]]
      .filter(([, us]) => us > 0).map(([name, us, kind]) => [name, duration(us / count), kind]);
    const off = Math.max(0, fetch - cpu);
    const many = count > 1 ? `${count} batches from ${lane.number[index]}, mean` : `Batch ${lane.number[index]}`;
    const said = `epoch ${lane.epoch[index]}${fetch ? `; ${percent(off / fetch)} of fetching not on a core` : ""}`;
    return { title: `${lane.name}: ${many} ${duration(lane.busy[index] / count)}`, said, rows };
  }
  const pauseAt = (time) => pauses.find((pause) => pause.begin <= time && time <= pause.end);
  const describePause = (pause) => ({
    title: `Pause: ${pause.kind}, ${duration(pause.end - pause.begin)}`, said: pause.loader ? `loader ${pause.loader}` : "", rows: [],
  });

  function describe(track, time, y) {
    if (track.name === "memory" || track.name === "cores") return describeMoment(track, time);
    if (track.name === "lanes") {
      const row = scene.laneRows.rows.find((each) => y >= each.top && y <= each.top + each.height);
      if (row?.lane) {
        const index = search(row.lane.end, time);
        const hit = index < row.lane.end.length && row.lane.begin[index] <= time;
        return hit ? describeBatch(row.lane, index) : { title: `${row.lane.name}: idle`, said: `at ${duration(time)}`, rows: [] };
      }
      const index = search(waits.end, time);
      if (index < waits.end.length && waits.begin[index] <= time) {
        const why = ["the batch lay there", "no batch was ready", "later batches lay there, this one did not"][waits.why[index]];
        return { title: `next(): ${duration(waits.end[index] - waits.begin[index])}`, said: why, rows: [] };
      }
    }
    const reach = ((scene.shown.end - scene.shown.begin) / scene.plotWidth(track)) * 4;
    const event = track.name === "steps" && data.events.find((each) => Math.abs(each.time - time) < reach);
    if (event) return { title: `${event.kind}, at ${duration(event.time)}`, said: event.text, rows: [] };
    const group = scene.stepAt(time);
    if (group >= 0) return describeStep(group);
    const pause = pauseAt(time);
    return pause ? describePause(pause) : null;
  }
  function describeMoment(track, time) {
    const index = Math.max(0, search(moments.time, time + 1) - 1);
    if (!moments.time.length) return null;
    const said = `at ${duration(moments.time[index])}`;
    if (track.name === "memory") {
      return { title: `Memory: ${bytes(moments.high[index])}`, said, rows: [["of it workers", bytes(moments.workers[index]), "transform"]] };
    }
    const rows = moments.cores.slice(0, 16).map((use, core) => [`core ${moments.core_names[core]}`, `${use[index]} %`, "cause"]);
    if (moments.accelerator[index] != null) rows.push(["accelerator", `${moments.accelerator[index]} %`, "ink"]);
    return { title: `${moments.cpu_high[index].toFixed(1)} of ${data.num_cores} cores used`, said, rows };
  }

  return { inWords, describe, describeStep };
}
