{{- define "diagnose.labels" -}}
app.kubernetes.io/name: diagnose
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "diagnose.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}

{{- define "diagnose.hosts" -}}
{{- $name := include "diagnose.name" . -}}
{{- $service := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- concat (list $name (printf "%s.%s" $name .Release.Namespace) $service (printf ".%s.cluster.local" $service) (printf "%s.cluster.local" $service)) .Values.hosts | join "," -}}
{{- end -}}

{{- define "diagnose.mounts" -}}
- name: data
  mountPath: /data
- name: cache
  mountPath: /cache
{{- if or .Values.files .Values.executor.enabled }}
- name: files
  mountPath: /etc/diagnose
  readOnly: true
{{- end }}
{{- end -}}

{{- define "diagnose.environment" -}}
- name: DIAGNOSE_CACHE
  value: /cache
- name: DIAGNOSE_SERVE_ALLOWED_HOSTS
  value: {{ include "diagnose.hosts" . | quote }}
{{- with .Values.trustedProxies }}
- name: DIAGNOSE_SERVE_TRUSTED_PROXIES
  value: {{ . | quote }}
{{- end }}
{{- if .Values.database.secret }}
- name: DIAGNOSE_SERVE_DATABASE
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secret }}
      key: {{ .Values.database.key }}
{{- end }}
{{- if .Values.executor.enabled }}
- name: DIAGNOSE_SERVE_EXECUTORS
  value: /etc/diagnose/executors.yaml
{{- end }}
{{- range $name, $value := .Values.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "diagnose.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
