{{- define "agentgate.selector" -}}
app.kubernetes.io/name: agentgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "agentgate.labels" -}}
{{ include "agentgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "agentgate.limits" -}}
{{- if .Values.shared.limits -}}
shared by all replicas, in Redis
{{- else -}}
per process: N replicas admit up to N times as much
{{- end -}}
{{- end -}}
