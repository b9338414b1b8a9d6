package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// decider tells the broker what became of a transaction: at once, or when it asks.
type decider struct {
	guard sync.Mutex
	asked map[string]bool
}

func (decider *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (decider *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	decider.guard.Lock()
	defer decider.guard.Unlock()
	if strings.HasPrefix(string(message.Body), "asked") { // about others while the decision is on its way
		decider.asked[string(message.Body)] = true
	}
	switch string(message.Body) {
	case "asked commit":
		return primitive.CommitMessageState
	case "asked rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

// transactions: consumers see what was committed, at once or when the broker asked, and nothing else.
func transactions(cluster *Cluster) Outcome {
	topic := cluster.createTopic("transactions", 1, readWrite)
	decider := &decider{asked: map[string]bool{}}
	sender, err := rocketmq.NewTransactionProducer(decider, cluster.producerOptions("transactions", nil)...)
	must(err)
	must(sender.Start())
	outcome := Outcome{}
	for _, body := range []string{"commit", "rollback", "asked commit", "asked rollback"} {
		result, err := sender.SendMessageInTransaction(context.Background(), message(topic, body).WithKeys([]string{"key"}))
		must(err)
		outcome["answer to "+body] = fmt.Sprintf("%d, %d", result.Status, result.State)
	}
	reader, inbox := cluster.consumer("transactions", topic, tag("*"), nil)
	inbox.untilBodies(2)
	inbox.until("two questions", func() bool {
		decider.guard.Lock()
		defer decider.guard.Unlock()
		return len(decider.asked) == 2 || len(inbox.received) > 2
	})
	must(reader.Shutdown())
	must(sender.Shutdown())
	outcome["asked about"] = sortedKeys(decider.asked)
	for _, one := range inbox.all() {
		outcome[one.body] = propertyNames(one)
	}
	return outcome
}
