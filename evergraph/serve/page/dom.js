// What all parts of the page use: elements whose content is text, and numbers as people read them.

export const find = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text, never HTML. */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map(asChild));
  return made;
}

const asChild = (child) => (child instanceof Node ? child : String(child));

export function say(id, text) {
  const element = find(id);
  if (element.textContent !== text) element.textContent = text;
}

/** A bar whose length is a share of its place. */
export function bar(share) {
  const inner = make("b");
  inner.style.setProperty("--share", `${100 * Math.min(Math.max(share, 0), 1)}%`);
  return make("i", { "aria-hidden": "true" }, inner);
}

const whole = new Intl.NumberFormat("en");
export const count = (value) => whole.format(Math.round(value));
export const percent = (value, digits = 1) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
export const milliseconds = (value) =>
  value === null || value === undefined ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0ms`;
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

let names = [];

/** Give each class its color: by its place among the sorted names. */
export function nameClasses(found) {
  names = [...found].sort();
}

export function paint(element, name) {
  const place = names.indexOf(name);
  if (place >= 0) element.style.setProperty("--k", `var(--k${place % 10})`);
  return element;
}

export const dot = (name) => paint(make("span", { class: "dot", "aria-hidden": "true" }), name);
