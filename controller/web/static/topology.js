// The page of one topology: each part is drawn from the newest document, and a choice draws again from the same one.

import { chart, redraw } from "./chart.js";
import { byId, el, setText } from "./dom.js";
import { Graph } from "./graph.js";
import { follow, saying } from "./live.js";
import { nodes } from "./nodes.js";
import { plan } from "./plan.js";
import { queries, wireQueries } from "./queries.js";
import { selection } from "./selection.js";
import { PARTITION_STATES, badge } from "./shapes.js";
import { situation } from "./situation.js";
import { story } from "./story.js";
import { theme } from "./theme.js";

const [namespace, name] = location.pathname.split("/").slice(-2);
const api = `../../api/v1/topologies/${namespace}/${name}`;
const graph = new Graph(byId("graph"), select);
let doc = null;
let selected = null;
let arrived = 0;

/** What is selected: `{partition}`, `{query}` or null. */
function select(choice) {
  const same = choice !== null && selected !== null && choice.query === selected.query && choice.partition === selected.partition;
  selected = same ? null : choice;
  draw();
}

function draw() {
  if (doc === null) return;
  setText(byId("phase"), doc.connected ? doc.phase : `${doc.phase}, as known last`);
  byId("phase").dataset.phase = doc.incident ? "incident" : doc.phase;
  tick();
  chart(doc);
  story(doc);
  graph.show(doc, byId("detail-level").value, selected);
  selection(doc, selected, select);
  queries(doc, selected, select);
  plan(doc);
  nodes(doc);
}

/** What changes with time alone; the clock is the controller's, as far as it is known. */
function tick() {
  if (doc !== null) situation(doc, doc.time + (performance.now() - arrived) / 1000);
}

setText(byId("name"), decodeURIComponent(name));
document.title = `${decodeURIComponent(name)} · Reprise`;
byId("legend").append(...PARTITION_STATES.map((state) => el("li", {}, badge(state))));
theme(byId("theme"), redraw);
wireQueries(draw);
byId("detail-level").addEventListener("change", draw);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && selected !== null) select(null);
});

follow(api, `${api}/stream`, (newest) => {
  doc = newest;
  arrived = performance.now();
  draw();
  document.body.dataset.time = doc.time;
}, saying(byId("live")));
setInterval(tick, 1000);
