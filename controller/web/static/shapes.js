// A state is a shape, a word and a colour, in that order: nobody has to tell colours apart.

const SVG = "http://www.w3.org/2000/svg";
const CIRCLE = "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z";
const CROSS = "M2 0.6L6 4.6L10 0.6L11.4 2L7.4 6L11.4 10L10 11.4L6 7.4L2 11.4L0.6 10L4.6 6L0.6 2z";
const HALF = `${CIRCLE}M6 2.4v7.2a3.6 3.6 0 0 0 0-7.2z`;
const RING = `${CIRCLE}M6 3a3 3 0 1 1 0 6a3 3 0 1 1 0-6z`;
const PATHS = {
  running: CIRCLE,
  "catching-up": "M6 0.8L11.6 11H0.4z",
  starved: "M6 0.2L11.8 6L6 11.8L0.2 6zM6 3L3 6L6 9L9 6z",
  restoring: HALF,
  waiting: CROSS,
  poisoned: "M0.5 0.5h11v11h-11zM5.1 2v5h1.8v-5zM5.1 8.2v1.8h1.8v-1.8z",
  available: CIRCLE,
  recovering: HALF,
  ready: CIRCLE,
  joining: HALF,
  standby: RING,
  draining: HALF,
  drained: RING,
  lost: CROSS,
  refused: "M0.5 0.5h11v11h-11zM5.1 2v5h1.8v-5zM5.1 8.2v1.8h1.8v-1.8z",
};

export const PARTITION_STATES = ["running", "catching-up", "starved", "restoring", "waiting", "poisoned"];

/** An element that carries the state's shape; `setShape` gives it another one. */
export function shape(state) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("fill-rule", "evenodd");
  svg.append(path);
  setShape(svg, state);
  return svg;
}

export function setShape(svg, state) {
  if (svg.dataset.state === state) return;
  svg.dataset.state = state;
  svg.setAttribute("class", `shape ${state}`);
  svg.firstChild.setAttribute("d", PATHS[state] ?? RING);
}

/** Shape and word. */
export function badge(state) {
  const node = document.createElement("span");
  node.className = "state";
  node.append(shape(state), document.createElement("span"));
  setBadge(node, state);
  return node;
}

/** `word`: another one than the state's own. */
export function setBadge(node, state, word = state) {
  setShape(node.firstChild, state);
  if (node.lastChild.textContent !== word) node.lastChild.textContent = word;
}
