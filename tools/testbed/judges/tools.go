//go:build tools

// Programs that are built of this module beside its own.
package main

import _ "github.com/yannh/kubeconform/cmd/kubeconform"
