// Interop plays scenarios with the Go client of RocketMQ side by side and prints one line for each: "outcome " and JSON
// {scenario, seconds, outcome or error}.
//
// Arguments: address of the name server; prefix of topics and groups; "all" or names of scenarios. The exit code is 0
// even when scenarios fail: their lines say so.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Outcome is what is compared with the outcome on the reference.
type Outcome map[string]interface{}

var scenarios = map[string]func(*Cluster) Outcome{
	"AdminRequests": adminRequests,
	"Boundaries":    boundaries,
	"Broadcasting":  broadcasting,
	"Delays":        delays,
	"Ordered":       ordered,
	"Produce":       produce,
	"PullConsumer":  pullConsumer,
	"Refusals":      refusals,
	"RequestReply":  requestReply,
	"Retries":       retries,
	"SqlFilter":     sqlFilter,
	"TagFilter":     tagFilter,
	"Transactions":  transactions,
}

// Played by name only: they need a cluster with access control.
var secured = map[string]func(*Cluster) Outcome{
	"Signed": signed,
}

func main() {
	rlog.SetLogLevel("fatal")
	cluster := newCluster(os.Args[1], os.Args[2])
	names := os.Args[3:]
	if names[0] == "all" {
		names = nil
		for name := range scenarios {
			names = append(names, name)
		}
	}
	var running sync.WaitGroup
	lines := make(chan []byte, len(names))
	for _, name := range names {
		running.Add(1)
		go func(name string) {
			defer running.Done()
			lines <- play(name, cluster)
		}(name)
	}
	running.Wait()
	close(lines)
	for line := range lines {
		fmt.Printf("outcome %s\n", line)
	}
}

// A scenario fails by a panic (see must), which becomes the error of its line.
func play(name string, cluster *Cluster) (line []byte) {
	begin := time.Now()
	entry := map[string]interface{}{"scenario": name}
	defer func() {
		if failure := recover(); failure != nil {
			entry["error"] = fmt.Sprintf("%v\n%s", failure, debug.Stack())
		}
		entry["seconds"] = time.Since(begin).Seconds()
		line, _ = json.Marshal(entry)
	}()
	scenario, found := scenarios[name]
	if !found {
		scenario = secured[name]
	}
	entry["outcome"] = scenario(cluster)
	return line
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
