// kstatus says of each object on standard input, JSON one after another, what Flux and others that go by kstatus make of it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	decoder := json.NewDecoder(os.Stdin)
	for decoder.More() {
		var raw json.RawMessage
		check(decoder.Decode(&raw))
		var object unstructured.Unstructured
		check(object.UnmarshalJSON(raw))
		found, err := status.Compute(&object)
		check(err)
		line, err := json.Marshal(map[string]string{"status": string(found.Status), "message": found.Message})
		check(err)
		fmt.Println(string(line))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
