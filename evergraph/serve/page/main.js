// Keeps the page alive: reads the stream, draws, asks for a token, and comes back after a break.

import * as board from "./board.js";
import * as charts from "./charts.js";
import { find, say } from "./dom.js";
import * as node from "./node.js";
import * as service from "./service.js";

const SLOWEST = 15; // seconds between attempts to come back
const SMALL = 5000; // nodes up to which the page asks for a retraining by itself
const OFTEN = 15; // seconds between these

let retrained = performance.now() - 1000 * (OFTEN - 5);

function status(text, live = false) {
  find("status").classList.toggle("live", live);
  say("status", text);
}

function take(kind, data) {
  if (kind === "history") {
    charts.restart(data);
  } else if (kind === "stats" && data) {
    find("empty").hidden = data.nodes > 0;
    find("board").hidden = data.nodes === 0;
    status(data.nodes ? "live" : "live, and empty", true);
    charts.add(data);
    if (!data.nodes) return;
    board.show(data);
    charts.draw();
    node.offer(data.newest);
    prove(data);
  }
}

/** Compare with a retraining now and then, as long as that is cheap and somebody looks. */
function prove(stats) {
  const due = performance.now() - retrained > 1000 * OFTEN;
  const news = stats.proofs.at(-1)?.position !== stats.position;
  if (due && news && stats.held_out.tested && stats.nodes <= SMALL && !document.hidden) retrain(false);
}

async function retrain(told = true) {
  retrained = performance.now();
  find("retrain").disabled = true;
  try {
    board.proof(await service.retrain());
  } catch (error) {
    if (told) say("proof", error.message);
  } finally {
    find("retrain").disabled = false;
    retrained = performance.now();
  }
}

function askForToken(reason) {
  const dialog = find("ask");
  find("token").value = "";
  say("ask-message", reason);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      service.token.set(find("token").value.trim());
      resolve();
    }, { once: true });
  });
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

async function live() {
  for (let wait = 1; ; ) {
    try {
      await service.read((kind, data) => {
        wait = 1;
        find("leave").hidden = !service.token.get();
        take(kind, data);
      });
      status("the service has ended the stream; trying again");
    } catch (error) {
      if (error.status === 401) {
        status("a token is needed");
        const wrong = service.token.get();
        await askForToken(wrong ? "This token is not the right one." : "It is kept until this tab is closed.");
        continue;
      }
      status(`${error.message ?? "the stream broke"}; trying again`);
    }
    await pause(wait);
    wait = Math.min(2 * wait, SLOWEST);
  }
}

find("retrain").addEventListener("click", () => retrain());
find("leave").addEventListener("click", () => {
  service.token.drop();
  location.reload();
});
find("ask").addEventListener("cancel", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    find("id").focus();
  }
});
say("first", `curl ${location.origin}/events -d '{"type": "node", "id": "ann", "age": 31, "label": "editor"}'`);
live();
