-- How Argo CD finds the health of an object of fleetctl, of every kind, by its conditions.
-- deploy/argocd/argocd-cm.yaml has it in place.
local health = { status = "Progressing", message = "no operator has looked at it yet" }
local status = obj.status

if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= obj.metadata.generation then
  health.message = "its newest state is not looked at yet"
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end

local stalled, moving, ready = conditions.Stalled, conditions.Reconciling, conditions.Ready
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.message }
end
if moving ~= nil and moving.status == "True" then
  return { status = "Progressing", message = moving.message }
end
if ready ~= nil and ready.status == "True" then
  if ready.reason == "Suspended" then
    return { status = "Suspended", message = ready.message }
  end
  return { status = "Healthy", message = ready.message }
end
return health
