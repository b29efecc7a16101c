// Command webhook-go is the peer of bench/webhook.ts: the freeze rule of src/freeze/freeze-rule.ts as a validating webhook
// on controller-runtime, written the way its book shows.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/go-logr/logr"
)

const annotation = "ksvm.sigs.k8s.io/migrating"

type freezeHandler struct{ decoder admission.Decoder }

func (h *freezeHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	var crd, old apiextensionsv1.CustomResourceDefinition
	if err := h.decoder.Decode(request, &crd); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := h.decoder.DecodeRaw(request.OldObject, &old); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	before, after := storageVersionsOf(&old), storageVersionsOf(&crd)
	if !isFrozen(&old) || slices.Equal(before, after) {
		return admission.Allowed("")
	}
	return admission.Denied(fmt.Sprintf(
		"StorageVersionFrozen: cannot change the storage version of CustomResourceDefinition %q from %q to %q while its objects are being migrated",
		old.Name, strings.Join(before, ", "), strings.Join(after, ", ")))
}

func isFrozen(crd *apiextensionsv1.CustomResourceDefinition) bool {
	_, found := crd.Annotations[annotation]
	return found
}

func storageVersionsOf(crd *apiextensionsv1.CustomResourceDefinition) []string {
	names := []string{}
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			names = append(names, crd.Spec.Versions[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

func run() error {
	port := flag.Int("port", 9443, "port on 127.0.0.1")
	certDir := flag.String("cert-dir", "", "folder of tls.crt and tls.key")
	flag.Parse()
	log.SetLogger(logr.Discard())

	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("cannot register CustomResourceDefinition: %w", err)
	}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certDir})
	server.Register("/validate", &admission.Webhook{Handler: &freezeHandler{decoder: admission.NewDecoder(scheme)}})
	return server.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
