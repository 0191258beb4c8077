// The curves. No id and no name of a class goes in here: plotly reads some of its texts as HTML.

import { count, find, percent } from "./dom.js";

const MOST = 600; // points of a curve, as many as the service keeps
const SIZE = { size: 12 };
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };

let points = [];
let proofs = [];

export function restart(history) {
  points = history;
}

export function add(stats) {
  points.push({
    time: stats.time,
    position: stats.position,
    events_per_second: stats.events_per_second,
    memory_bytes: stats.memory_bytes,
    accuracy: stats.prequential.accuracy,
    recent: stats.prequential.recent,
    novelty: stats.novelty.mean,
    held_out: stats.held_out.accuracy,
  });
  if (points.length > MOST) points.shift();
  proofs = stats.proofs;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function layout(more) {
  const axis = { gridcolor: color("--line"), linecolor: color("--line"), zeroline: false, fixedrange: true, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: color("--soft"), family: "system-ui, DejaVu Sans, sans-serif", ...SIZE },
    hoverlabel: { font: SIZE },
    hovermode: "x unified",
    dragmode: false,
    showlegend: false,
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

function line(x, y, name, shade, more = {}) {
  const style = { color: color(shade), width: 2, ...more };
  return { x, y, name, mode: "lines", type: "scatter", line: style };
}

/** One point per position: while nothing comes, the curves stand still. */
function moved() {
  return points.filter((point, at) => point.position && point.position !== points[at + 1]?.position);
}

function drawCurve() {
  const kept = moved();
  const x = kept.map((point) => point.position);
  const of = (name) => kept.map((point) => point[name]);
  const proved = proofs.filter((proof) => proof.retrained.accuracy !== null);
  const traces = [
    line(x, of("accuracy"), "all labels so far", "--line-1", { width: 3 }),
    line(x, of("recent"), "last 1,000 labels", "--line-2"),
    line(x, of("held_out"), "held out", "--line-3", { dash: "dot" }),
    {
      x: proved.map((proof) => proof.position),
      y: proved.map((proof) => proof.retrained.accuracy),
      name: "held out, retrained from scratch",
      mode: "markers",
      type: "scatter",
      marker: { symbol: "diamond-open", size: 10, color: color("--line-4"), line: { width: 2 } },
    },
  ];
  const narrow = find("curve").clientWidth < 520;
  window.Plotly.react("curve", traces, layout({
    margin: { l: 44, r: 12, t: 8, b: narrow ? 110 : 70 },
    xaxis: { title: { text: "events", standoff: 6 }, tickformat: ",d", nticks: narrow ? 4 : 8 },
    yaxis: { tickformat: ".0%", rangemode: "normal" },
    showlegend: true,
    legend: { orientation: "h", x: 0, y: narrow ? -0.3 : -0.22, yanchor: "top", font: SIZE },
  }), CONFIG);
  const last = kept.at(-1);
  const text = last?.accuracy == null ? "no label was predicted yet" : `${percent(last.accuracy)} after ${count(last.position)} events`;
  find("curve").setAttribute("aria-label", `Curve of the accuracy: ${text}`);
}

function drawSmall(id, name, shade, format, value) {
  const x = points.map((point) => new Date(1000 * point.time));
  const y = points.map(value);
  window.Plotly.react(id, [{ ...line(x, y, name, shade), hovertemplate: `%{y:${format}}<extra></extra>` }], layout({
    margin: { l: 44, r: 8, t: 6, b: 22 },
    xaxis: { nticks: 4, tickformat: "%H:%M:%S" },
    yaxis: { rangemode: "tozero", nticks: 4, tickformat: format },
  }), CONFIG);
  const last = y.at(-1);
  find(id).setAttribute("aria-label", `Curve of ${name}, now ${last == null ? "unknown" : last.toFixed(2)}`);
}

export function draw() {
  if (!window.Plotly) return;
  drawCurve();
  drawSmall("rates", "events per second", "--line-1", ",.0f", (point) => point.events_per_second);
  drawSmall("novelty", "novelty", "--line-4", ".2f", (point) => point.novelty);
  drawSmall("bytes", "memory in MB", "--line-2", ",.0f", (point) => point.memory_bytes / 1e6);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
