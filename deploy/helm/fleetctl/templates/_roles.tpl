{{- /* Two releases, each of a namespace, have cluster roles of their own. */}}
{{- define "fleetctl.cluster" -}}
fleetctl-operator{{ with .Values.watchNamespace }}-{{ . }}{{ end }}
{{- end }}

{{- /* What is read and written of the kinds that are given. */}}
{{- define "fleetctl.rules" }}
- apiGroups: [fleetctl.dev]
  resources: {{- range .kinds }}
  - {{ . }}
  {{- end }}
  verbs: [get, list, watch, patch{{ if .server }}, create, delete{{ end }}]
- apiGroups: [fleetctl.dev]
  resources: {{- range .kinds }}
  - {{ . }}/status
  {{- end }}
  verbs: [patch]
{{- end }}

{{- define "fleetctl.events" }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{- define "fleetctl.subject" }}
- kind: ServiceAccount
  name: fleetctl-operator
  namespace: {{ .Release.Namespace }}
{{- end }}
