// Where operators and their subscriptions are drawn: dagre does it, for boxes whose size depends on what is open.

import dagre from "./vendor/dagre.esm.js";

const CELL = { width: 84, height: 24, gap: 4 };
const CHARACTER = 7.6; // px of a digit in a cell, at most
const HEAD = 30;
const LINE = 19; // px of one more line of a name
const PAD = 6;
const CLOSED = { width: 214, height: 90 };
const MIN_WIDTH = 124;
const WIDEST_NAME = 260; // px; a longer name takes several lines, and is whole all the same
const BESIDE_NAME = 58; // px of the head that are not the name's

const pen = document.createElement("canvas").getContext("2d");
const known = new Map();

/** The width that a name takes in one line, px. */
function widthOf(name) {
  if (!known.has(name)) {
    pen.font = `bold 15px ${getComputedStyle(document.body).fontFamily}`;
    known.set(name, Math.ceil(pen.measureText(name).width) + 4);
  }
  return known.get(name);
}

/** Width and lines of the head of an operator. */
function head(operator) {
  const whole = widthOf(operator.name);
  const width = Math.min(whole, WIDEST_NAME) + BESIDE_NAME;
  // a line that breaks at a hyphen may be half empty
  return { width, lines: whole <= WIDEST_NAME ? 1 : Math.ceil(whole / WIDEST_NAME) + 1 };
}

/** Cells side by side in a box of so many. */
export const columns = (cells) => Math.max(1, Math.ceil(Math.sqrt(cells / 3)));

function size(operator, open, cell) {
  const { width: least, lines } = head(operator);
  const more = (lines - 1) * LINE;
  if (!open) return { width: Math.max(CLOSED.width, least), height: CLOSED.height + more };
  const across = columns(operator.partitions.length);
  const down = Math.ceil(operator.partitions.length / across);
  return {
    width: Math.max(MIN_WIDTH, least, across * (cell + CELL.gap) + 2 * PAD),
    height: HEAD + more + down * (CELL.height + CELL.gap) + 2 * PAD,
  };
}

/** The width of a cell with so many characters of index and position, px. */
export const cellWidth = (characters) => Math.max(CELL.width, Math.ceil(44 + characters * CHARACTER));

/** Boxes by operator (x, y of the corner), edges with points, and the size of the whole; `upright`: from top to bottom; `cell`:
    width of a partition. */
export function layOut(graph, isOpen, upright, cell) {
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: upright ? "TB" : "LR", nodesep: 22, ranksep: upright ? 38 : 58, edgesep: 10, marginx: 8, marginy: 8 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const operator of graph.operators) g.setNode(operator.name, size(operator, isOpen(operator), cell));
  graph.edges.forEach((edge, index) => {
    const label = edge.feedback ? `${edge.label} (batch before)` : edge.label;
    g.setEdge(edge.origin, edge.target, { text: label, width: label.length * 6, height: 12, labelpos: "c" }, String(index));
  });
  dagre.layout(g);
  const boxes = new Map();
  for (const name of g.nodes()) {
    const { x, y, width, height } = g.node(name);
    boxes.set(name, { x: x - width / 2, y: y - height / 2, width, height });
  }
  const edges = graph.edges.map((edge, index) => {
    const { points, x, y, text } = g.edge(edge.origin, edge.target, String(index));
    return { ...edge, points, x, y, text };
  });
  const { width, height } = g.graph();
  return { boxes, edges, width: Math.ceil(width), height: Math.ceil(height) };
}

/** A path through the points, straight where dagre is and rounded between. */
export function path(points) {
  const [first, ...rest] = points;
  let text = `M${first.x} ${first.y}`;
  for (let index = 0; index < rest.length - 1; index += 1) {
    const { x, y } = rest[index];
    const after = rest[index + 1];
    text += `Q${x} ${y} ${(x + after.x) / 2} ${(y + after.y) / 2}`;
  }
  const last = rest.at(-1);
  return `${text}L${last.x} ${last.y}`;
}
