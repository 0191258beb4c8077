// One node: what it is, why, who is around it, and a way to forget it.

import { bar, count, dot, find, make, paint, percent, plural, say } from "./dom.js";
import * as service from "./service.js";

const AROUND = 24; // neighbors that are drawn
const LISTED = 6; // bars of a kind
const SVG = "http://www.w3.org/2000/svg";

let shown = null; // the id of the node that is seen
let asked = 0; // only the last question is answered

function tell(text, bad = false) {
  find("message").classList.toggle("bad", bad);
  say("message", text);
}

export async function look(id) {
  const mine = ++asked;
  find("id").value = id;
  try {
    const node = await service.node(id);
    // without labels there is nothing to predict or explain: the node alone is shown
    const none = (error) => { if (error.status === 409) return null; throw error; };
    const [found, why] = await Promise.all([
      service.predict(node.id).catch(none), service.explain(node.id).catch(none),
    ]);
    if (mine !== asked) return;
    shown = node.id;
    about(node, found);
    around(node, why);
    reasons(node, why);
    tell("");
    find("node").hidden = false;
  } catch (error) {
    if (mine !== asked) return;
    find("node").hidden = true;
    tell(error.message, true);
  }
}

function about(node, found) {
  const one = found?.predictions[0];
  say("name", String(node.id));
  const facts = [];
  const fact = (name, ...parts) => facts.push(make("dt", {}, name), make("dd", {}, ...parts));
  fact("Label", ...(node.label === null ? ["not known yet"] : [dot(node.label), node.label]));
  if (one) {
    fact("Predicted", dot(one.class), `${one.class}, ${percent(one.probability)}`);
    fact("Label set", one.label_set.join(", "));
    fact("Novelty", one.novelty.toFixed(2));
    fact("Version", `after ${count(found.version)} events`);
  } else {
    fact("Predicted", "nothing was learned yet");
  }
  fact("Neighbors", count(node.degree));
  find("facts").replaceChildren(...facts);
  const likely = Object.entries(one?.probabilities ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 5);
  find("likely").replaceChildren(...likely.map(([name, share]) =>
    paint(make("div", { class: "bar" }, make("span", { title: name }, name), bar(share),
      make("span", {}, percent(share))), name)));
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const short = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);

function point(x, y, radius, id, label, below = radius + 11) {
  const group = svg("g", {}, svg("title", {}, label === null ? `${id}` : `${id}: ${label}`),
    svg("circle", { cx: x, cy: y, r: radius }), svg("text", { x, y: y + below }, short(String(id))));
  return paint(group, label);
}

/** The neighbors on an ellipse, the heaviest edges first. */
function around(node, why) {
  const near = node.neighbors.toSorted((a, b) => b.weight - a.weight).slice(0, AROUND);
  const lines = [], points = [];
  const most = Math.max(...near.map((one) => one.weight), 1e-9);
  near.forEach((one, at) => {
    const angle = (2 * Math.PI * at) / near.length;
    const far = near.length > 12 && at % 2 ? 0.7 : 1; // two rings leave room for the names
    const x = 180 + 145 * far * Math.cos(angle), y = 143 + 118 * far * Math.sin(angle);
    lines.push(svg("line", { x1: 180, y1: 143, x2: x, y2: y, "stroke-width": 0.8 + 2.2 * (one.weight / most) }));
    const made = point(x, y, 8, one.id, one.label);
    made.dataset.id = "";
    made.addEventListener("click", () => look(one.id));
    points.push(made);
  });
  const center = point(180, 143, 14, node.id, node.label ?? why?.class ?? null);
  center.classList.add("center");
  find("graph").replaceChildren(...lines, ...points, center);
  const names = near.map((one) => String(one.id)).join(", ");
  find("graph").setAttribute("aria-label", near.length ? `${node.id} and its neighbors ${names}` : `${node.id}, without neighbors`);
  say("graph-note", node.degree > near.length
    ? `${near.length} of ${plural(node.degree, "neighbor")}; colors are labels, gray ones have none yet`
    : "Colors are labels; gray ones have none yet. A click leads to a neighbor.");
}

function parts(list, rest, row) {
  const left = list.slice(LISTED).reduce((sum, one) => sum + one.part, rest);
  const seen = list.slice(0, LISTED).map((one) => [row(one), one.part]);
  if (list.length > LISTED || rest) seen.push([make("span", {}, "all others"), left]);
  if (!seen.length) seen.push([make("span", {}, "none"), 0]);
  const most = Math.max(...seen.map(([, part]) => Math.abs(part)), 1e-12);
  return seen.map(([name, part]) => make("div", { class: part < 0 ? "bar two minus" : "bar two" },
    name, bar(Math.abs(part) / most / 2), make("span", {}, signed(part))));
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

function reasons(node, why) {
  say("why-title", why ? `Why ${why.class}?` : "No explanation yet");
  say("why-note", why
    ? `Score ${why.score.toFixed(3)} = ${why.bias.toFixed(3)} that every node has, and the parts of nodes; or those of features.`
    : "Nothing was learned yet.");
  find("near").replaceChildren(...(why ? parts(why.neighbors, why.other_neighbors, (one) => {
    if (one.id === node.id) return make("span", { title: String(one.id) }, "itself");
    const link = make("button", { type: "button", title: String(one.id) }, String(one.id));
    link.addEventListener("click", () => look(one.id));
    return link;
  }) : []));
  find("features").replaceChildren(...(why ? parts(why.features, why.other_features, (one) =>
    make("span", { title: one.feature }, one.feature)) : []));
}

function confirmed() {
  const dialog = find("confirm");
  say("confirm-name", String(shown));
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => { // a late event of an earlier dialog is not an answer to this one
    dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "yes");
  });
}

async function forget() {
  const id = shown;
  if (!(await confirmed())) return;
  find("forget").disabled = true;
  try {
    const { digest } = await service.forget(id);
    asked += 1;
    shown = null;
    find("node").hidden = true;
    tell("");
    find("message").replaceChildren(make("strong", {}, `${id} is forgotten. `), "The model is now one that never saw it.",
      make("span", { class: "digest", id: "digest-before" }, `digest before ${digest.before}`),
      make("span", { class: "digest", id: "digest-after" }, `digest after  ${digest.after}`));
    find("id").focus();
  } catch (error) {
    tell(error.message, true);
  } finally {
    find("forget").disabled = false;
  }
}

let newest = [];

/** Offer the newest nodes; the first of them is shown if nothing was looked at yet. */
export function offer(ids) {
  if (!asked && ids.length) look(ids[0]);
  if (String(ids) === String(newest)) return;
  newest = ids;
  find("newest").replaceChildren(...ids.map((id) => make("option", { value: String(id) })));
}

find("search").addEventListener("submit", (event) => {
  event.preventDefault();
  look(find("id").value);
});
find("latest").addEventListener("click", () => newest.length && look(newest[0]));
find("forget").addEventListener("click", forget);
