// Command decodable prints, as JSON, the group, version and kind of every object that an API server of the release it is
// built with can read from etcd: one {"group/version": ["Kind"]}. It decodes an empty object of each registered kind into
// the internal version, as the storage layer does: a kind that is registered without a conversion is left out.
// ../decodable.ts builds it with each release.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

func main() {
	apiextensions.Install(legacyscheme.Scheme)
	apiregistration.Install(legacyscheme.Scheme)
	decoder := serializer.NewCodecFactory(legacyscheme.Scheme).UniversalDecoder()
	found := map[string][]string{}
	for gvk := range legacyscheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal && isObject(gvk) && decodes(decoder, gvk) {
			name := gvk.GroupVersion().String()
			found[name] = append(found[name], gvk.Kind)
		}
	}
	for _, kinds := range found {
		sort.Strings(kinds)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

// isObject tells objects from lists, options and statuses, which are never stored.
func isObject(gvk schema.GroupVersionKind) bool {
	object, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		panic(err)
	}
	_, ok := object.(metav1.ObjectMetaAccessor)
	return ok
}

func decodes(decoder runtime.Decoder, gvk schema.GroupVersionKind) bool {
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"any"}}`, gvk.GroupVersion(), gvk.Kind)
	_, _, err := decoder.Decode([]byte(text), nil, nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s cannot be decoded: %v\n", gvk, err)
	}
	return err == nil
}
