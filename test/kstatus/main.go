// Reads Kubernetes objects from stdin, one JSON text each, and prints a line of JSON for each: what kstatus says of it, or what
// the health script of Argo CD does whose path is the one argument.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type answer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	judge := kstatusOf
	if len(os.Args) > 1 {
		script, err := os.ReadFile(os.Args[1])
		if err != nil {
			return err
		}
		judge = func(object *unstructured.Unstructured) (*answer, error) { return healthOf(object, string(script)) }
	}
	objects := json.NewDecoder(in)
	for {
		var raw json.RawMessage
		if err := objects.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		// As clients read it: whole numbers are int64.
		if err := object.UnmarshalJSON(raw); err != nil {
			return err
		}
		said, err := judge(object)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(said); err != nil {
			return err
		}
	}
}

func kstatusOf(object *unstructured.Unstructured) (*answer, error) {
	result, err := status.Compute(object)
	if err != nil {
		return nil, err
	}
	return &answer{Status: result.Status.String(), Message: result.Message}, nil
}
