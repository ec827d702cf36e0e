{{- define "bowline.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "bowline.speaker.image" -}}
{{- .Values.speaker.image | default (include "bowline.image" .) -}}
{{- end -}}

{{- define "bowline.controller.labels" -}}
app.kubernetes.io/name: bowline
app.kubernetes.io/component: controller
{{- end -}}

{{- /* Of the agent of one load balancer; takes its name. */ -}}
{{- define "bowline.agent.labels" -}}
app.kubernetes.io/component: agent
bowline.dev/load-balancer: {{ . }}
{{- end -}}

{{- /* Takes a list: the root, the port, and what else to annotate. */ -}}
{{- define "bowline.annotations" -}}
{{- $root := index . 0 -}}
{{- $own := dict -}}
{{- if and $root.Values.monitoring.annotations (index . 1) -}}
{{- $own = dict "prometheus.io/scrape" "true" "prometheus.io/port" (index . 1 | toString) "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- with merge $own (index . 2 | default dict) -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}
