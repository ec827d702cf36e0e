//! MetalLB's namespace and its kind of pool, as far as the import from MetalLB reads it.

/// The namespace and the CRD. The test creates the pools.
pub const METALLB: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: metallb-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: IPAddressPool, listKind: IPAddressPoolList, plural: ipaddresspools, singular: ipaddresspool}
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [addresses]
              properties:
                addresses: {type: array, items: {type: string}}
                autoAssign: {type: boolean, default: true}
";
