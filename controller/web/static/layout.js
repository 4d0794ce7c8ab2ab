// Where operators and their subscriptions are drawn: dagre does it, for boxes whose size depends on what is open.

import dagre from "./vendor/dagre.esm.js";

const CELL = { width: 84, height: 24, gap: 4 };
const HEAD = 30;
const PAD = 6;
const CLOSED = { width: 214, height: 90 };
const MIN_WIDTH = 124;

/** Cells side by side in a box of so many. */
export const columns = (cells) => Math.max(1, Math.ceil(Math.sqrt(cells / 3)));

function size(operator, open) {
  if (!open) return { ...CLOSED };
  const across = columns(operator.partitions.length);
  const down = Math.ceil(operator.partitions.length / across);
  return {
    width: Math.max(MIN_WIDTH, across * (CELL.width + CELL.gap) + 2 * PAD),
    height: HEAD + down * (CELL.height + CELL.gap) + 2 * PAD,
  };
}

/** Boxes by operator (x, y of the corner), edges with points, and the size of the whole; `upright`: from top to bottom. */
export function layOut(graph, isOpen, upright) {
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: upright ? "TB" : "LR", nodesep: 22, ranksep: upright ? 38 : 58, edgesep: 10, marginx: 8, marginy: 8 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const operator of graph.operators) g.setNode(operator.name, size(operator, isOpen(operator)));
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
