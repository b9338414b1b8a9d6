package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const each = 20

// produce: what is sent in each of the client's ways arrives, with tag, keys, properties and body.
func produce(cluster *Cluster) Outcome {
	topic := cluster.createTopic("produce", 4, readWrite)
	sender := cluster.producer("produce")
	statuses := map[string]bool{}
	var guard sync.Mutex
	note := func(result *primitive.SendResult, err error) {
		must(err)
		guard.Lock()
		defer guard.Unlock()
		statuses[fmt.Sprintf("%d, %d", result.Status, len(result.OffsetMsgID))] = true
	}
	ctx := context.Background()
	var answered sync.WaitGroup
	for i := 0; i < each; i++ {
		note(sender.SendSync(ctx, message(topic, fmt.Sprintf("sync %d", i)).WithTag("tag").WithKeys([]string{"a", fmt.Sprint(i)})))
		must(sender.SendOneWay(ctx, message(topic, fmt.Sprintf("oneway %d", i))))
		answered.Add(1)
		must(sender.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			note(result, err)
			answered.Done()
		}, message(topic, fmt.Sprintf("async %d", i))))
	}
	answered.Wait()
	batch := []*primitive.Message{}
	for i := 0; i < each; i++ {
		batch = append(batch, message(topic, fmt.Sprintf("batch %d", i)).WithTag("batch"))
	}
	_, err := sender.SendSync(ctx, batch...)
	must(err)
	large := strings.Repeat("compressible ", 1000)
	note(sender.SendSync(ctx, message(topic, large)))
	unicode := message(topic, "Ünïcödé 🦕").WithTag("größe").WithKeys([]string{"ключ", "鍵", "🔑"})
	unicode.WithProperty(" наме ", `値 = "1"`)
	note(sender.SendSync(ctx, unicode))
	must(sender.Shutdown())
	reader, inbox := cluster.consumer("produce", topic, consumer.MessageSelector{}, nil)
	inbox.untilBodies(4*each + 2)
	must(reader.Shutdown())
	return received(inbox, large, statuses)
}

func received(inbox *Inbox, large string, statuses map[string]bool) Outcome {
	outcome := Outcome{"answers": sortedKeys(statuses)}
	keys := 0
	for _, one := range inbox.all() {
		switch {
		case one.tags == "größe":
			outcome["unicode"] = []string{one.body, one.tags, one.keys, one.properties[" наме "]}
		case one.body == large:
			outcome["of a body that was compressed"] = propertyNames(one)
		case strings.HasPrefix(one.body, "sync"):
			if one.keys == "a "+strings.TrimPrefix(one.body, "sync ") {
				keys++
			}
			outcome["properties"] = propertyNames(one)
		case strings.HasPrefix(one.body, "batch"):
			outcome["properties of a batch"] = propertyNames(one)
		}
	}
	outcome["keys arrived"] = keys
	return outcome
}
