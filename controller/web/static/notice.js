// What stands in the way of believing the page: nobody looks after this topology, its spec is refused, or what is shown is old.
// What is old is dimmed and says how old it is; of what was never known nothing is shown, and so nothing looks well.

import { byId, setText } from "./dom.js";
import { clock, span } from "./format.js";
import { OLD_S } from "./live.js";

/** The kind, the sentence, what can be done, and whether what is shown is old.  Null: nothing to say. */
function found({ mode, words, known, doc, refused, age, name }) {
  const after = known ? " What is below was known last." : "";
  if (mode === "missing") {
    return known
      ? ["gone", `${name} is not looked after here any more.`, "It was deleted, or another controller has taken it over.", true]
      : ["gone", `${name} is not looked after here.`, "Nothing is known of it, so nothing is shown. Its name or namespace may be another one, it may have been deleted, or the controller has just begun and has not seen it yet. On Kubernetes, kubectl get topo --all-namespaces lists what there is.", true];
  }
  if (mode === "signed-out") return ["lost", "This browser is not signed in any more.", `Load the page again and show the token.${after}`, true];
  if (mode === "away") {
    const why = words ? `The controller answers: ${words}.` : "The controller does not answer.";
    return ["lost", why, `The topology itself may well go on: this page says nothing of it until the controller is back.${after}`, true];
  }
  if (age > OLD_S) return ["lost", "The controller answers, but has not looked at this topology for a while.", `It may be stuck or overloaded.${after}`, true];
  if (refused) {
    return doc
      ? ["refused", "The newest spec is refused; the one before it stays in force.", refused, false]
      : ["refused", "Its spec is refused, so nothing of it was started.", refused, false];
  }
  if (doc && !doc.connected) return ["lost", "ZooKeeper does not answer, so nobody knows how the topology stands now.", "What is below was known last. The topology itself goes on; nothing is decided meanwhile.", true];
  return null;
}

/** `state`: mode, words, doc, refused, age in seconds, name, and `at`, unix seconds of what is shown. */
export function notice(state) {
  const known = Boolean(state.doc);
  const said = found({ ...state, known });
  const box = byId("notice");
  box.hidden = said === null;
  document.body.dataset.shows = known || said === null ? "all" : "nothing";
  document.body.dataset.old = said !== null && said[3] && known;
  if (said === null) return;
  const [kind, words, help, old] = said;
  box.dataset.kind = kind;
  setText(byId("notice-words"), words);
  setText(byId("notice-help"), help);
  const told = old && known && state.age !== null;
  byId("notice-age").hidden = !told;
  if (told) setText(byId("notice-age"), `${span(state.age)} old: as of ${clock(state.at)}`);
}

/** What the badge beside the name says, and the kind that colours it. */
export function badgeOf({ mode, doc, refused }) {
  if (!doc) {
    if (mode === "missing") return ["not looked after here", "unknown"];
    if (refused) return ["refused", "incident"];
    return [mode === "away" || mode === "signed-out" ? "unknown" : "loading", "unknown"];
  }
  if (document.body.dataset.old === "true") return [`${doc.phase}, as known last`, "unknown"];
  return [doc.phase, doc.incident ? "incident" : doc.phase];
}
