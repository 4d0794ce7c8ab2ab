// The list of all topologies that the controller looks after, and of those whose spec it refuses.

import { byId, cell, el, keyed, setText } from "./dom.js";
import { clock, percent, span } from "./format.js";
import { follow, saying } from "./live.js";
import { badge, setBadge } from "./shapes.js";
import { theme } from "./theme.js";

const EMPTY = "This controller looks after no topology. One that was just created is here within seconds; one in another namespace may belong to another controller.";
let told = null; // when the controller answered last, and with what
let mode = "loading";
let words = "";

const worst = (queries) => (queries.waiting ? "waiting" : queries.recovering ? "recovering" : "available");

function row(item) {
  const link = el("a", { href: `t/${encodeURIComponent(item.namespace)}/${encodeURIComponent(item.name)}` }, item.name);
  const titles = ["namespace", "phase", "available", "by priority", "incident", "batch"];
  const cells = titles.map((title, index) => cell(title, { class: [2, 3, 5].includes(index) ? "number" : title === "namespace" ? "name" : title }));
  cells[1].append(badge("available"));
  return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader", class: "name" }, link), ...cells);
}

function update(line, item) {
  const [, namespace, phase, available, share, incident, batch] = line.children;
  const { queries } = item;
  setText(namespace, item.namespace);
  if (!queries) {
    setBadge(phase.firstChild, "refused");
    for (const node of [available, share, batch]) setText(node, "–");
    setText(incident, `its spec is refused, nothing was started: ${item.refused}`);
    return;
  }
  setBadge(phase.firstChild, worst(queries), item.connected ? item.phase : `${item.phase}, ZooKeeper does not answer`);
  setText(available, `${queries.available} of ${queries.total}`);
  setText(share, percent(queries.share));
  const open = item.incident ? `${item.incident.kind}, ${item.incident.phase}, since ${clock(item.incident.opened_at)}` : "none";
  setText(incident, item.refused ? `${open}; its newest spec is refused: ${item.refused}` : open);
  setText(batch, item.batch);
}

function tick() {
  const lost = mode === "away" || mode === "signed-out";
  byId("notice").hidden = !lost;
  document.body.dataset.old = lost && told !== null;
  if (!lost) return;
  byId("notice").dataset.kind = "lost";
  setText(byId("notice-words"), mode === "signed-out" ? "This browser is not signed in any more." : words ? `The controller answers: ${words}.` : "The controller does not answer.");
  setText(byId("notice-help"), mode === "signed-out" ? "Load the page again and show the token." : "Topologies may well go on: this page says nothing of them until the controller is back.");
  byId("notice-age").hidden = told === null;
  if (told !== null) setText(byId("notice-age"), `${span((Date.now() - told) / 1000)} old: as of ${clock(told / 1000)}`);
  if (told === null) setText(byId("none"), "Nothing is known.");
}

theme(byId("theme"));
const sign = saying(byId("live"));
follow("api/v1/topologies", null, ({ items }) => {
  byId("none").hidden = items.length > 0;
  setText(byId("none"), EMPTY);
  byId("all").hidden = items.length === 0;
  keyed(byId("rows"), items, (item) => `${item.namespace}/${item.name}`, row, update);
}, (how, said) => {
  [mode, words] = [how, said];
  sign(how);
  tick();
}, () => (told = Date.now()));
setInterval(tick, 1000);
