// Availability over time against the bound, drawn by uPlot; the same numbers stand in a table below it.

import { byId, el, keyed, setText, whenChanged } from "./dom.js";
import { clock, percent } from "./format.js";

const HEIGHT = 230;
const FONT = "12px system-ui, sans-serif";
let plot = null;
let drawn = null;

/** The newest incident's time, with a little before it. */
function view(doc) {
  const incident = doc.incident ?? doc.last_incident;
  const points = doc.availability.points;
  if (!incident) return null;
  const end = incident.closed_at ?? doc.time;
  const pad = Math.max(2, (end - incident.opened_at) * 0.05);
  const from = Math.min(incident.opened_at, ...incident.lost.map((entry) => entry.time)) - pad;
  const to = incident.closed_at ? Math.min(doc.time, end + pad) : end;
  let before = { time: from, share: 1, available: doc.queries.total, bound: 1 };
  const inside = [];
  for (const point of points) {
    if (point.time <= from) before = { ...point, time: from };
    else if (point.time <= to) inside.push(point);
  }
  const list = [before, ...inside];
  list.push({ ...list.at(-1), time: to });
  return { incident, points: list, from, to };
}

export function chart(doc) {
  const seen = view(doc);
  for (const name of ["chart", "chart-key", "chart-table"]) byId(name).hidden = seen === null;
  byId("chart-none").hidden = seen !== null;
  if (seen === null) return;
  drawn = seen;
  const percents = (field) => seen.points.map((point) => (point[field] === null ? null : point[field] * 100));
  const data = [seen.points.map((point) => point.time), percents("share"), percents("bound")];
  if (plot === null) plot = make(data);
  else plot.setData(data);
  const last = seen.points.at(-1);
  const bound = last.bound === null ? "" : `; the capacity allows at most ${percent(last.bound)}`;
  byId("chart").setAttribute("aria-label", `Available queries over time: ${percent(last.share)} by priority at ${clock(last.time)}${bound}. All values are in the table below.`);
  whenChanged(byId("chart-rows"), seen.points.map((point) => point.time).slice(0, -1), () => table(seen.points.slice(0, -1)));
}

/** Again, in the colours or the width of now. */
export function redraw() {
  if (plot === null) return;
  const { data } = plot;
  plot.destroy();
  plot = make(data);
}

function make(data) {
  const box = byId("chart");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--text"), font: FONT, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const steps = uPlot.paths.stepped({ align: 1 });
  return new uPlot({
    width: Math.max(280, box.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range: [0, 112] } },
    axes: [
      { ...axis, values: (_, times) => times.map(clock), space: 75 },
      { ...axis, values: (_, values) => values.map((value) => `${value} %`), splits: () => [0, 25, 50, 75, 100], size: 55 },
    ],
    series: [
      {},
      { label: "available", stroke: colour("--running"), width: 3, paths: steps, points: { show: false } },
      { label: "at most", stroke: colour("--catching-up"), width: 2, dash: [8, 5], paths: steps, points: { show: false } },
    ],
    hooks: { draw: [(chart) => marks(chart, colour)] },
  }, data, box);
}

/** Losses of nodes and plans above the lines, as signs that differ by shape. */
function marks(chart, colour) {
  const { ctx } = chart;
  const size = 11 * devicePixelRatio;
  ctx.save();
  ctx.font = `${size}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  const sign = (time, text, name) => {
    if (time < drawn.from || time > drawn.to) return;
    ctx.fillStyle = colour(name);
    ctx.fillText(text, chart.valToPos(time, "x", true), chart.bbox.top + size);
  };
  for (const plan of drawn.incident.plans) sign(plan.time, "▼", "--catching-up");
  for (const lost of drawn.incident.lost) sign(lost.time, "✕", "--waiting");
  ctx.restore();
}

function table(points) {
  keyed(byId("chart-rows"), points, (point) => point.time, () => el("tr", {}, el("td"), ...[1, 2, 3].map(() => el("td", { class: "number" }))), (line, point) => {
    const bound = point.bound === null ? "not known" : percent(point.bound);
    [clock(point.time), point.available, percent(point.share), bound].forEach((value, index) => setText(line.children[index], value));
  });
}

if (typeof ResizeObserver !== "undefined") {
  new ResizeObserver(([entry]) => {
    if (plot !== null && entry.contentRect.width > 0) plot.setSize({ width: Math.max(280, entry.contentRect.width), height: HEIGHT });
  }).observe(byId("chart"));
}
