{{/* Labels of every object. Those of Helm are left out of the manifests for kustomize, which are rendered from this chart. */}}
{{- define "criscope.labels" -}}
app.kubernetes.io/name: criscope
{{- if .Values.helmLabels }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image: by its digest if there is one, else by its tag, else by the version of the chart; from the registry of the chart above. */}}
{{- define "criscope.image" -}}
{{- $repository := .Values.image.repository -}}
{{- with (.Values.global).imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^[^/]*[.:][^/]*/" $repository "") -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Secrets to pull the image: those of this chart and of the chart above it, as [{name: registry}] or [registry]. */}}
{{- define "criscope.pullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.imagePullSecrets ((.Values.global).imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- if $secrets }}
imagePullSecrets: {{ toJson $secrets }}
{{- end -}}
{{- end }}

{{/* Labels of objects for Prometheus and Grafana. */}}
{{- define "criscope.monitoringLabels" -}}
{{- include "criscope.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A file of rules or dashboards with these labels. Helm must not read it: it is full of braces of its own. */}}
{{- define "criscope.file" -}}
{{- $labels := include "criscope.monitoringLabels" .root | nindent 4 -}}
{{ .root.Files.Get .name | replace "\n    app.kubernetes.io/name: criscope" $labels }}
{{- end }}

{{/* Arguments of the installer. */}}
{{- define "criscope.installArgs" -}}
{{- $args := list (printf "--max-parallel=%v" .Values.install.maxParallel) (printf "--soak=%s" .Values.install.soak) -}}
{{- with .Values.install.canary -}}
{{- $args = append $args (printf "--canary=%s" .) -}}
{{- end -}}
{{ toJson (concat $args .Values.install.args) }}
{{- end }}
