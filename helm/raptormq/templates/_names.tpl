{{- define "raptormq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "raptormq.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "raptormq.operator" -}}
{{- printf "%s-operator" (include "raptormq.fullname" .) -}}
{{- end -}}

{{- define "raptormq.selectorLabels" -}}
app.kubernetes.io/name: {{ include "raptormq.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "raptormq.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "raptormq.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "raptormq.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "raptormq.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create=false needs serviceAccount.name, the account that gets the operator's rights" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "raptormq.image" -}}
{{- with .Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* What the operator may do in each namespace that it watches. */}}
{{- define "raptormq.rules" -}}
- apiGroups: [raptormq.io]
  resources: [brokerclusters, topics]
  verbs: [get, list, watch]
# The finalizer of a Topic whose deletionPolicy is Delete.
- apiGroups: [raptormq.io]
  resources: [topics]
  verbs: [patch]
- apiGroups: [raptormq.io]
  resources: [brokerclusters/status, topics/status]
  verbs: [patch]
# Owner references that block deletion, where the API server checks them.
- apiGroups: [raptormq.io]
  resources: [brokerclusters/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Claims that were taken up with another size or class, or are others than before.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list]
# The last words of pods that fail, and what keeps pods from beginning.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# A roll evicts pods, so that disruption budgets count it.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- if .Values.accessControl.enabled }}
# Secrets that BrokerClusters with spec.accessControl name: read one by one, and made when there is none.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- end -}}
