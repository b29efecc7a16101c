package storageversionmigrator

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// startKsvm takes the place of kubecontrollermanagertesting.StartTestServerOrDie: it starts ksvm controller as a process
// and returns once that is ready. What it returns ends the process, as does the end of this one, whatever ends it.
func startKsvm(t *testing.T, kubeConfigFile string) func() {
	t.Helper()
	logName := strings.ReplaceAll(t.Name(), "/", "_") + ".ksvm.log"
	log, err := os.Create(filepath.Join(os.Getenv("KSVM_CONFORMANCE_LOGS"), logName))
	if err != nil {
		t.Fatalf("failed to create the log of ksvm: %v", err)
	}
	service := exec.Command(os.Getenv("KSVM_CONFORMANCE_NODE"), os.Getenv("KSVM_CONFORMANCE_SERVICE"), kubeConfigFile)
	service.Stderr = log
	// It ends once this pipe is closed.
	lifeline, err := service.StdinPipe()
	if err != nil {
		t.Fatalf("failed to start ksvm: %v", err)
	}
	answers, err := service.StdoutPipe()
	if err != nil {
		t.Fatalf("failed to start ksvm: %v", err)
	}
	if err := service.Start(); err != nil {
		t.Fatalf("failed to start ksvm: %v", err)
	}

	var once sync.Once
	stop := func() {
		once.Do(func() {
			_ = lifeline.Close()
			deadline := time.AfterFunc(time.Minute, func() { _ = service.Process.Kill() })
			defer deadline.Stop()
			if err := service.Wait(); err != nil {
				t.Errorf("ksvm did not end as it should: %v, see %s", err, log.Name())
			}
			_ = log.Close()
		})
	}
	t.Cleanup(stop)

	answer, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil || answer != "ready\n" {
		t.Fatalf("ksvm did not get ready: %q, %v, see %s", answer, err, log.Name())
	}
	return stop
}
