// Command controlplane is the three Kubernetes servers that the tests run against, in one binary: linking them
// together costs a fifth more than the API server alone. The name it is called by picks the one to run. etcd is
// imported only so that `go mod tidy` keeps it at the version Kubernetes wants; it is built as a binary of its own.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	_ "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          func() *cobra.Command { return apiserver.NewAPIServerCommand() },
		"kube-controller-manager": func() *cobra.Command { return controllermanager.NewControllerManagerCommand() },
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	newCommand := commands[filepath.Base(os.Args[0])]
	if newCommand == nil {
		fmt.Fprintln(os.Stderr, "call me kube-apiserver, kube-controller-manager or kube-scheduler")
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}
