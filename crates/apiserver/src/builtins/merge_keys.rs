//! Which lists and maps of the built-in kinds merge, and by which keys. The types' schemas do not have
//! these facts of the Kubernetes API. Only [`super::definitions`] reads the table.

/// A field, its merge key, its patch strategy, and its list or map type: `atomic`, `set`, `map:KEYS`
/// for a list, `map-atomic` for a map. An empty field means the whole definition.
pub(super) type Row = (&'static str, &'static str, &'static str, &'static str);

/// All rows, by definition.
#[rustfmt::skip]
pub(super) const MERGE_KEYS: &[(&str, &[Row])] = &[
    ("io.k8s.api.apps.v1.DeploymentSpec", &[
        ("strategy", "", "retainKeys", ""),
    ]),
    ("io.k8s.api.apps.v1.DeploymentStatus", &[
        ("conditions", "type", "merge", "map:type"),
    ]),
    ("io.k8s.api.apps.v1.StatefulSetSpec", &[
        ("volumeClaimTemplates", "", "", "atomic"),
    ]),
    ("io.k8s.api.apps.v1.StatefulSetStatus", &[
        ("conditions", "type", "merge", "map:type"),
    ]),
    ("io.k8s.api.authorization.v1.FieldSelectorAttributes", &[
        ("requirements", "", "", "atomic"),
    ]),
    ("io.k8s.api.authorization.v1.LabelSelectorAttributes", &[
        ("requirements", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.Capabilities", &[
        ("add", "", "", "atomic"),
        ("drop", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.CephFSVolumeSource", &[
        ("monitors", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ConfigMapKeySelector", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.ConfigMapProjection", &[
        ("items", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", &[
        ("items", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.Container", &[
        ("args", "", "", "atomic"),
        ("command", "", "", "atomic"),
        ("env", "name", "merge", "map:name"),
        ("envFrom", "", "", "atomic"),
        ("ports", "containerPort", "merge", "map:containerPort,protocol"),
        ("resizePolicy", "", "", "atomic"),
        ("restartPolicyRules", "", "", "atomic"),
        ("volumeDevices", "devicePath", "merge", "map:devicePath"),
        ("volumeMounts", "mountPath", "merge", "map:mountPath"),
    ]),
    ("io.k8s.api.core.v1.ContainerImage", &[
        ("names", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", &[
        ("values", "", "", "set"),
    ]),
    ("io.k8s.api.core.v1.ContainerStatus", &[
        ("allocatedResourcesStatus", "name", "merge", "map:name"),
        ("volumeMounts", "mountPath", "merge", "map:mountPath"),
    ]),
    ("io.k8s.api.core.v1.DownwardAPIProjection", &[
        ("items", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", &[
        ("items", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.EndpointAddress", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.EndpointPort", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.EndpointSubset", &[
        ("addresses", "", "", "atomic"),
        ("notReadyAddresses", "", "", "atomic"),
        ("ports", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.Endpoints", &[
        ("subsets", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.EphemeralContainer", &[
        ("args", "", "", "atomic"),
        ("command", "", "", "atomic"),
        ("env", "name", "merge", "map:name"),
        ("envFrom", "", "", "atomic"),
        ("ports", "containerPort", "merge", "map:containerPort,protocol"),
        ("resizePolicy", "", "", "atomic"),
        ("restartPolicyRules", "", "", "atomic"),
        ("volumeDevices", "devicePath", "merge", "map:devicePath"),
        ("volumeMounts", "mountPath", "merge", "map:mountPath"),
    ]),
    ("io.k8s.api.core.v1.ExecAction", &[
        ("command", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.FCVolumeSource", &[
        ("targetWWNs", "", "", "atomic"),
        ("wwids", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.FileKeySelector", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.HTTPGetAction", &[
        ("httpHeaders", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.HostAlias", &[
        ("hostnames", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ISCSIVolumeSource", &[
        ("portals", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.LinuxContainerUser", &[
        ("supplementalGroups", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.LoadBalancerIngress", &[
        ("ports", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.LoadBalancerStatus", &[
        ("ingress", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.LocalObjectReference", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.NamespaceSpec", &[
        ("finalizers", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.NamespaceStatus", &[
        ("conditions", "type", "merge", "map:type"),
    ]),
    ("io.k8s.api.core.v1.NodeAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus", &[
        ("containers", "", "", "set"),
    ]),
    ("io.k8s.api.core.v1.NodeSelector", &[
        ("", "", "", "map-atomic"),
        ("nodeSelectorTerms", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.NodeSelectorRequirement", &[
        ("values", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.NodeSelectorTerm", &[
        ("", "", "", "map-atomic"),
        ("matchExpressions", "", "", "atomic"),
        ("matchFields", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.NodeSpec", &[
        ("podCIDRs", "", "merge", "set"),
        ("taints", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.NodeStatus", &[
        ("addresses", "type", "merge", "map:type"),
        ("conditions", "type", "merge", "map:type"),
        ("declaredFeatures", "", "", "atomic"),
        ("images", "", "", "atomic"),
        ("runtimeHandlers", "", "", "atomic"),
        ("volumesAttached", "", "", "atomic"),
        ("volumesInUse", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ObjectFieldSelector", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.ObjectReference", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &[
        ("accessModes", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimStatus", &[
        ("accessModes", "", "", "atomic"),
        ("conditions", "type", "merge", "map:type"),
    ]),
    ("io.k8s.api.core.v1.PodAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", "", "", "atomic"),
        ("requiredDuringSchedulingIgnoredDuringExecution", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PodAffinityTerm", &[
        ("matchLabelKeys", "", "", "atomic"),
        ("mismatchLabelKeys", "", "", "atomic"),
        ("namespaces", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PodAntiAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", "", "", "atomic"),
        ("requiredDuringSchedulingIgnoredDuringExecution", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PodDNSConfig", &[
        ("nameservers", "", "", "atomic"),
        ("options", "", "", "atomic"),
        ("searches", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PodExtendedResourceClaimStatus", &[
        ("requestMappings", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PodSecurityContext", &[
        ("supplementalGroups", "", "", "atomic"),
        ("sysctls", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.PodSpec", &[
        ("containers", "name", "merge", "map:name"),
        ("ephemeralContainers", "name", "merge", "map:name"),
        ("hostAliases", "ip", "merge", "map:ip"),
        ("imagePullSecrets", "name", "merge", "map:name"),
        ("initContainers", "name", "merge", "map:name"),
        ("nodeSelector", "", "", "map-atomic"),
        ("readinessGates", "", "", "atomic"),
        ("resourceClaims", "name", "merge,retainKeys", "map:name"),
        ("schedulingGates", "name", "merge", "map:name"),
        ("tolerations", "", "", "atomic"),
        ("topologySpreadConstraints", "topologyKey", "merge", "map:topologyKey,whenUnsatisfiable"),
        ("volumes", "name", "merge,retainKeys", "map:name"),
    ]),
    ("io.k8s.api.core.v1.PodStatus", &[
        ("conditions", "type", "merge", "map:type"),
        ("containerStatuses", "", "", "atomic"),
        ("ephemeralContainerStatuses", "", "", "atomic"),
        ("hostIPs", "ip", "merge", "atomic"),
        ("initContainerStatuses", "", "", "atomic"),
        ("nodeAllocatableResourceClaimStatuses", "", "", "atomic"),
        ("podIPs", "ip", "merge", "map:ip"),
        ("resourceClaimStatuses", "name", "merge,retainKeys", "map:name"),
    ]),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", &[
        ("sources", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.RBDVolumeSource", &[
        ("monitors", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ResourceFieldSelector", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.ResourceRequirements", &[
        ("claims", "", "", "map:name"),
    ]),
    ("io.k8s.api.core.v1.ResourceStatus", &[
        ("resources", "", "", "map:resourceID"),
    ]),
    ("io.k8s.api.core.v1.SecretKeySelector", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.SecretProjection", &[
        ("items", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.SecretVolumeSource", &[
        ("items", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.ServiceAccount", &[
        ("imagePullSecrets", "", "", "atomic"),
        ("secrets", "name", "merge", "map:name"),
    ]),
    ("io.k8s.api.core.v1.ServiceSpec", &[
        ("clusterIPs", "", "", "atomic"),
        ("externalIPs", "", "", "atomic"),
        ("ipFamilies", "", "", "atomic"),
        ("loadBalancerSourceRanges", "", "", "atomic"),
        ("ports", "port", "merge", "map:port,protocol"),
        ("selector", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.core.v1.ServiceStatus", &[
        ("conditions", "type", "merge", "map:type"),
    ]),
    ("io.k8s.api.core.v1.TopologySpreadConstraint", &[
        ("matchLabelKeys", "", "", "atomic"),
    ]),
    ("io.k8s.api.core.v1.TypedLocalObjectReference", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.discovery.v1.Endpoint", &[
        ("addresses", "", "", "set"),
    ]),
    ("io.k8s.api.discovery.v1.EndpointHints", &[
        ("forNodes", "", "", "atomic"),
        ("forZones", "", "", "atomic"),
    ]),
    ("io.k8s.api.discovery.v1.EndpointPort", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.discovery.v1.EndpointSlice", &[
        ("endpoints", "", "", "atomic"),
        ("ports", "", "", "atomic"),
    ]),
    ("io.k8s.api.networking.v1.HTTPIngressRuleValue", &[
        ("paths", "", "", "atomic"),
    ]),
    ("io.k8s.api.networking.v1.IngressLoadBalancerIngress", &[
        ("ports", "", "", "atomic"),
    ]),
    ("io.k8s.api.networking.v1.IngressLoadBalancerStatus", &[
        ("ingress", "", "", "atomic"),
    ]),
    ("io.k8s.api.networking.v1.IngressSpec", &[
        ("rules", "", "", "atomic"),
        ("tls", "", "", "atomic"),
    ]),
    ("io.k8s.api.networking.v1.IngressTLS", &[
        ("hosts", "", "", "atomic"),
    ]),
    ("io.k8s.api.networking.v1.ServiceBackendPort", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.rbac.v1.AggregationRule", &[
        ("clusterRoleSelectors", "", "", "atomic"),
    ]),
    ("io.k8s.api.rbac.v1.ClusterRole", &[
        ("rules", "", "", "atomic"),
    ]),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", &[
        ("subjects", "", "", "atomic"),
    ]),
    ("io.k8s.api.rbac.v1.PolicyRule", &[
        ("apiGroups", "", "", "atomic"),
        ("nonResourceURLs", "", "", "atomic"),
        ("resourceNames", "", "", "atomic"),
        ("resources", "", "", "atomic"),
        ("verbs", "", "", "atomic"),
    ]),
    ("io.k8s.api.rbac.v1.Role", &[
        ("rules", "", "", "atomic"),
    ]),
    ("io.k8s.api.rbac.v1.RoleBinding", &[
        ("subjects", "", "", "atomic"),
    ]),
    ("io.k8s.api.rbac.v1.RoleRef", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.api.rbac.v1.Subject", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionNames", &[
        ("categories", "", "", "atomic"),
        ("shortNames", "", "", "atomic"),
    ]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec", &[
        ("versions", "", "", "atomic"),
    ]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", &[
        ("conditions", "", "", "map:type"),
        ("storedVersions", "", "", "atomic"),
    ]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion", &[
        ("additionalPrinterColumns", "", "", "atomic"),
        ("selectableFields", "", "", "atomic"),
    ]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", &[
        ("allOf", "", "", "atomic"),
        ("anyOf", "", "", "atomic"),
        ("enum", "", "", "atomic"),
        ("oneOf", "", "", "atomic"),
        ("required", "", "", "atomic"),
        ("x-kubernetes-list-map-keys", "", "", "atomic"),
        ("x-kubernetes-validations", "rule", "merge", "map:rule"),
    ]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookConversion", &[
        ("conversionReviewVersions", "", "", "atomic"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &[
        ("dryRun", "", "", "atomic"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement", &[
        ("values", "", "", "atomic"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &[
        ("", "", "", "map-atomic"),
        ("matchExpressions", "", "", "atomic"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &[
        ("values", "", "", "atomic"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &[
        ("finalizers", "", "merge", "set"),
        ("managedFields", "", "", "atomic"),
        ("ownerReferences", "uid", "merge", "map:uid"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", &[
        ("", "", "", "map-atomic"),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails", &[
        ("causes", "", "", "atomic"),
    ]),
];
