{{- define "raptormq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* The start of all names. Services need a DNS label that starts with a letter, but names of releases may have points and
     start with a digit. */}}
{{- define "raptormq.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- $full = $full | trunc 53 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- fail (printf "%s cannot be the start of the names of Services: set fullnameOverride to lower-case letters, digits and -, with a letter first" $full) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{- define "raptormq.operator" -}}
{{- printf "%s-operator" (include "raptormq.fullname" .) -}}
{{- end -}}

{{/* The only name with a limit of 63 characters that the full name can exceed. */}}
{{- define "raptormq.metricsService" -}}
{{- printf "%s-metrics" (include "raptormq.operator" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "raptormq.uninstall" -}}
{{- printf "%s-uninstall" (include "raptormq.fullname" .) -}}
{{- end -}}

{{- define "raptormq.selectorLabels" -}}
app.kubernetes.io/name: {{ include "raptormq.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "raptormq.labels" -}}
{{ include "raptormq.selectorLabels" . }}
{{ include "raptormq.commonLabels" . }}
{{- end -}}

{{/* The labels of pods that are not the operator, so that no selector may match them: the component differs. */}}
{{- define "raptormq.hookLabels" -}}
app.kubernetes.io/name: {{ include "raptormq.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{ include "raptormq.commonLabels" .root }}
{{- end -}}

{{- define "raptormq.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
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
  resources: [brokerclusters, sparkpipelines, topics]
  verbs: [get, list, watch]
# The finalizer of a Topic whose deletionPolicy is Delete.
- apiGroups: [raptormq.io]
  resources: [topics]
  verbs: [patch]
- apiGroups: [raptormq.io]
  resources: [brokerclusters/status, sparkpipelines/status, topics/status]
  verbs: [patch]
# For owner references with blockOwnerDeletion, if the API server enforces the permission.
- apiGroups: [raptormq.io]
  resources: [brokerclusters/finalizers, sparkpipelines/finalizers]
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
# Detects volume claims with another size or class, replaced claims, and claims of earlier clusters, which an annotation
# shows.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, patch]
# Messages of failing pods, and reasons why pods do not start.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# Rolling updates evict pods, so that disruption budgets apply.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- if .Values.accessControl.enabled }}
# Secrets named in BrokerClusters with spec.accessControl. Missing Secrets are created.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
{{- end }}
{{- if .Values.sparkPipelines.enabled }}
# Drivers of SparkPipelines, their accounts and volume claims.
- apiGroups: [""]
  resources: [persistentvolumeclaims, pods, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch]
# What drivers may do. The API server lets the operator grant only rights that it has itself.
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, pods, services]
  verbs: [update, deletecollection]
# Drivers that the Apache Spark Kubernetes Operator runs (runBy).
- apiGroups: [spark.apache.org]
  resources: [sparkapplications]
  verbs: [get, list, create, delete]
# Whether the Secrets that a SparkPipeline names have the keys that it needs.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- end -}}

{{/* Annotations of the objects of the uninstallation, with their weight. */}}
{{- define "raptormq.uninstallHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
