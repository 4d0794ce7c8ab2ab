// What partitions read and which queries need them, from the edges between operators: pairs of partitions would be millions.

const split = (id) => [id.slice(0, id.lastIndexOf(".")), id.slice(id.lastIndexOf(".") + 1)];
const partitionsOf = (doc, operator) => doc.graph.operators.find((entry) => entry.name === operator)?.partitions ?? [];

/** Ids of the partitions that this one reads. */
export function reads(doc, id) {
  const [operator, index] = split(id);
  const inputs = doc.graph.edges.filter((edge) => edge.target === operator);
  return inputs.flatMap((edge) => (edge.forward ? [`${edge.origin}.${index}`] : partitionsOf(doc, edge.origin)));
}

/** Operators of which a partition of this one needs that of its own index, and those of which it needs all. */
function needs(doc, operator) {
  const own = new Set([operator]);
  const whole = new Set();
  for (const name of own) {
    for (const edge of doc.graph.edges) {
      if (edge.target === name) (edge.forward ? own : whole).add(edge.origin);
    }
  }
  for (const name of whole) {
    for (const edge of doc.graph.edges) if (edge.target === name) whole.add(edge.origin);
  }
  return { own, whole };
}

/** Whether a query needs a partition, for any partition. */
export function members(doc, query) {
  const [operator, index] = split(query);
  const { own, whole } = needs(doc, operator);
  return (id) => {
    const [name, at] = split(id);
    return whole.has(name) || (own.has(name) && at === index);
  };
}

/** Queries that need a partition. */
export function queriesOf(doc, id) {
  const [name, at] = split(id);
  const known = new Map();
  return doc.queries.items.filter((query) => {
    const [operator, index] = split(query.id);
    if (!known.has(operator)) known.set(operator, needs(doc, operator));
    const { own, whole } = known.get(operator);
    return whole.has(name) || (own.has(name) && at === index);
  });
}
