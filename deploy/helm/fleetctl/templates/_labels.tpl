{{- define "fleetctl.labels" -}}
app.kubernetes.io/name: fleetctl
app.kubernetes.io/part-of: fleetctl
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fleetctl.selector" -}}
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fleetctl.claim" -}}
{{ .Values.storage.existingClaim | default "fleetctl-state" }}
{{- end }}
