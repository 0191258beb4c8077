// Numbers and tables: what the service sends every second.

import { bar, count, dot, find, make, milliseconds, nameClasses, percent, plural, say } from "./dom.js";

const KINDS = { error: "error rate", novelty: "novelty" };

export function show(stats) {
  nameClasses(Object.keys(stats.classes));
  tiles(stats);
  classes(stats);
  confusion(stats.confusion);
  alarms(stats.drift.last);
  proof(stats.proofs.at(-1));
}

function tiles(stats) {
  const { prequential, counts, latency_ms: latency } = stats;
  say("accuracy", percent(prequential.accuracy));
  say("accuracy-note", prequential.scored
    ? `of ${plural(prequential.scored, "label")}; recently ${percent(prequential.recent)}`
    : "no prediction was scored yet");
  say("rate", count(stats.events_per_second));
  say("rate-note", `${count(stats.position)} so far, ${count(counts.refused)} refused`);
  say("latency", milliseconds(latency.predict.p50));
  say("latency-note", `p99 ${milliseconds(latency.predict.p99)}; solve ${milliseconds(latency.solve.p50)}`);
  say("memory", `${count(stats.memory_bytes / 1e6)} MB`);
  say("memory-note", `${plural(stats.queue, "event")} waiting`);
  say("nodes", count(stats.nodes));
  say("nodes-note", `nodes, ${plural(stats.edges, "edge")}, ${plural(Object.keys(stats.classes).length, "class", "classes")}`);
  const total = stats.drift.alarms + stats.novelty.alarms;
  say("alarms", count(total));
  say("alarms-note", `${count(stats.drift.alarms)} drift, ${count(stats.novelty.alarms)} novelty`);
  find("alarm-tile").classList.toggle("alert", total > 0);
}

function classes(stats) {
  const rows = Object.entries(stats.classes).map(([name, labels]) => {
    const scored = stats.prequential.classes[name];
    const cell = make("td");
    if (scored) {
      cell.append(make("div", { class: "meter", title: `${scored.right} of ${scored.scored} right` },
        bar(scored.accuracy), make("span", {}, percent(scored.accuracy, 0))));
    } else {
      cell.append("–");
    }
    return make("tr", {},
      make("th", { scope: "row", class: "cut", title: name }, dot(name), name),
      make("td", { class: "number" }, count(labels)), cell);
  });
  const none = make("tr", {}, make("td", { colspan: 3, class: "note" }, "No labels yet."));
  find("classes").tBodies[0].replaceChildren(...(rows.length ? rows : [none]));
}

function confusion({ classes: names, counts }) {
  say("confusion-note", names.length
    ? "Rows are what nodes are, columns what was predicted before the label came."
    : "No prediction was scored yet.");
  const head = names.map((name) => make("th", { scope: "col", title: name }, make("span", {}, name)));
  const body = names.map((name, at) => {
    const total = counts[at].reduce((a, b) => a + b, 0) || 1;
    const cells = counts[at].map((value, to) => {
      const share = value / total;
      const cell = make("td", {}, value ? count(value) : "");
      cell.style.setProperty("--share", `${Math.round(100 * share)}%`);
      cell.style.setProperty("--hue", at === to ? "var(--accent)" : "var(--against)");
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", class: "cut", title: name }, dot(name), name), ...cells);
  });
  const corner = make("td");
  find("confusion").replaceChildren(...(names.length
    ? [make("thead", {}, make("tr", {}, corner, ...head)), make("tbody", {}, ...body)] : []));
}

function alarms(last) {
  const lines = last.toReversed().map((alarm) => make("li", {},
    `${new Date(1000 * alarm.time).toLocaleTimeString()}, after ${count(alarm.position)} events: the ` +
    `${KINDS[alarm.kind] ?? "stream"} ${alarm.after > alarm.before ? "rose" : "fell"} from ${alarm.before.toFixed(2)} to ${alarm.after.toFixed(2)}`));
  find("alarm-list").replaceChildren(...(lines.length
    ? lines : [make("li", {}, "None: neither the error rate nor the novelty has changed so far.")]));
}

export function proof(last) {
  if (!last) return;
  const text = `${last.equal ? "Equal to a retraining from scratch" : "NOT equal to a retraining"}: `;
  const rest = `at event ${count(last.position)} both digests ${last.equal ? "agree" : "differ"}; held-out accuracy ` +
    `${percent(last.served.accuracy)} served, ${percent(last.retrained.accuracy)} retrained.`;
  if (find("proof").textContent === text + rest) return;
  find("proof").replaceChildren(make("span", { class: last.equal ? "equal" : "unequal" }, text), rest);
}
