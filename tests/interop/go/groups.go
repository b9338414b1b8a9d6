package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// broadcasting: each member of a broadcasting group receives everything.
func broadcasting(cluster *Cluster) Outcome {
	topic := cluster.createTopic("broadcasting", 2, readWrite)
	model := consumer.WithConsumerModel(consumer.BroadCasting)
	first, inbox := cluster.consumer("broadcasting", topic, tag("*"), nil, model)
	second, other := cluster.consumer("broadcasting", topic, tag("*"), nil, model)
	sender := cluster.producer("broadcasting")
	for i := 0; i < each; i++ {
		_, err := sender.SendSync(context.Background(), message(topic, fmt.Sprintf("broadcast-%d", i)))
		must(err)
	}
	must(sender.Shutdown())
	inbox.untilBodies(each)
	other.untilBodies(each)
	must(first.Shutdown())
	must(second.Shutdown())
	return Outcome{"first": len(bodies(inbox.all())), "second": len(bodies(other.all()))}
}

// ordered: messages with one sharding key lie in one queue, and an orderly consumer receives them in their order, those
// that it could not consume at once among them.
func ordered(cluster *Cluster) Outcome {
	topic := cluster.createTopic("ordered", 4, readWrite)
	sender := cluster.producer("ordered", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	queues := map[string]map[int]bool{}
	for i := 0; i < each; i++ {
		for _, key := range []string{"one", "two", "three", "four", "five"} {
			result, err := sender.SendSync(context.Background(), message(topic, fmt.Sprintf("%s:%02d", key, i)).WithShardingKey(key))
			must(err)
			if queues[key] == nil {
				queues[key] = map[int]bool{}
			}
			queues[key][result.MessageQueue.QueueId] = true
		}
	}
	must(sender.Shutdown())
	failed := false
	reader, inbox := cluster.consumer("ordered", topic, tag("*"), func(ctx context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
		if string(one.Body) == "three:03" && !failed {
			failed = true
			if orderly, found := primitive.GetOrderlyCtx(ctx); found {
				orderly.SuspendCurrentQueueTimeMillis = 10
			}
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeSuccess
	}, consumer.WithConsumerOrder(true))
	inbox.untilBodies(5 * each)
	must(reader.Shutdown())
	single, inOrder, last := 0, 5, map[string]string{}
	for _, places := range queues {
		if len(places) == 1 {
			single++
		}
	}
	for _, one := range inbox.all() {
		key := strings.Split(one.body, ":")[0]
		if one.body < last[key] {
			inOrder--
		}
		last[key] = one.body
	}
	return Outcome{"keys in one queue": single, "keys in order": inOrder, "failed once": failed}
}
