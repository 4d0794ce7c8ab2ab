// The page of one topology: each part is drawn from the newest document, and a choice draws again from the same one.

import { chart, redraw } from "./chart.js";
import { byId, el, setText } from "./dom.js";
import { down } from "./down.js";
import { gaps, wishes } from "./gaps.js";
import { Graph } from "./graph.js";
import { follow, saying } from "./live.js";
import { nodes } from "./nodes.js";
import { badgeOf, notice } from "./notice.js";
import { partitions, wirePartitions } from "./partitions.js";
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
let upcoming = [];
let refused = "";
let selected = null;
let arrived = 0;
let mode = "loading";
let words = "";
let told = null; // how old what is shown was when the controller said so last, and when that was

/** What is selected: `{partition}`, `{query}` or null. */
function select(choice) {
  const same = choice !== null && selected !== null && choice.query === selected.query && choice.partition === selected.partition;
  selected = same ? null : choice;
  draw();
}

function draw() {
  if (doc === null) return tick();
  tick();
  chart(doc);
  story(doc);
  gaps(doc);
  wishes(doc);
  graph.show(doc, byId("detail-level").value, selected);
  selection(doc, selected, select);
  queries(doc, selected, select);
  plan(doc);
  partitions(doc, selected, select);
  nodes(doc);
}

/** What changes with time alone; the clock is the controller's, as far as it is known. */
function tick() {
  const passed = told === null ? null : (performance.now() - told.at) / 1000;
  notice({ mode, words, doc, refused, name: decodeURIComponent(name), age: told === null ? null : told.age + passed, at: told === null ? null : doc?.time });
  const [word, kind] = badgeOf({ mode, doc, refused });
  setText(byId("phase"), word);
  byId("phase").dataset.phase = kind;
  if (doc === null) return;
  const now = doc.time + (performance.now() - arrived) / 1000;
  situation(doc, upcoming, now);
  down(doc, upcoming, now, select, selected);
}

setText(byId("name"), decodeURIComponent(name));
document.title = `${decodeURIComponent(name)} · Reprise`;
byId("legend").append(...PARTITION_STATES.map((state) => el("li", {}, badge(state))));
theme(byId("theme"), redraw);
wireQueries(draw);
wirePartitions(draw);
byId("detail-level").addEventListener("change", draw);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && selected !== null) select(null);
});

const sign = saying(byId("live"));
follow(`${api}/page`, `${api}/stream`, (newest) => {
  ({ document: doc, upcoming, refused } = newest);
  arrived = performance.now();
  draw();
  document.body.dataset.time = doc?.time ?? "";
}, (how, said) => {
  [mode, words] = [how, said];
  sign(how);
  tick();
}, (age) => {
  told = { age, at: performance.now() };
});
setInterval(tick, 1000);
