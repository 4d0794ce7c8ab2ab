-- How a StreamTopology stands, for Argo CD: in the ConfigMap argocd-cm, the text of this file is the value of
--   resource.customizations.health.reprise.dev_StreamTopology
-- (docs/kubernetes.md, Looking).  The conditions are the operator's; the first that applies counts.
local health = {status = "Progressing", message = "the operator has not looked at it yet"}
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
local seen, wanted = status.observedGeneration, obj.metadata.generation
if seen ~= nil and wanted ~= nil and seen < wanted then
  health.message = "the operator has not looked at the newest spec yet"
  return health
end
local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local rules = {
  {"Stalled", "True", "Degraded"},
  {"Observed", "False", "Unknown"},
  {"Paused", "True", "Suspended"},
  {"Reconciling", "True", "Progressing"},
  {"Degraded", "True", "Degraded"},
  {"Ready", "True", "Healthy"},
}
for _, rule in ipairs(rules) do
  local condition = conditions[rule[1]]
  if condition ~= nil and condition.status == rule[2] then
    return {status = rule[3], message = (condition.reason or "") .. ": " .. (condition.message or "")}
  end
end
local ready = conditions["Ready"]
if ready ~= nil then
  health.message = (ready.reason or "") .. ": " .. (ready.message or "")
end
return health
