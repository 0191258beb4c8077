// Talks to the service: questions, and the stream of what happens.

const KEPT = "evergraph token";

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (value) => sessionStorage.setItem(KEPT, value),
  drop: () => sessionStorage.removeItem(KEPT),
};

export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the service does not answer");
  }
  if (answer.ok) return answer;
  const found = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, found.error ?? `the service answers ${answer.status}`);
}

/** Integers that JavaScript cannot hold stay text: ids may have 19 digits. */
const exact = (_, value, context) =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && context ? context.source : value;
const parse = (text) => JSON.parse(text, exact);
const json = async (path, options) => parse(await (await ask(path, options)).text());

function path(id) {
  // a browser takes dots alone for folders, even as %2E
  if (/^\.\.?$/.test(id)) throw new Refused(0, "a browser cannot ask for this id: use curl --path-as-is");
  return encodeURIComponent(id);
}

export const node = async (id) => json(`/nodes/${path(id)}`);
export const explain = async (id) => json(`/explain/${path(id)}`);
export const forget = (id) => json(`/nodes/${path(id)}`, { method: "DELETE" });
export const retrain = () => json("/retrain", { method: "POST" });
export const predict = (id) =>
  json("/predict", { method: "POST", body: JSON.stringify({ ids: [id], remember: false }) });

/** Read /stream until it ends; EventSource cannot send a token. */
export async function read(take) {
  const answer = await ask("/stream");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field("data") !== undefined) take(field("event"), parse(field("data")));
    }
  }
}
