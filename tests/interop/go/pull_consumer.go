package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pullConsumer: single pulls at offsets of the caller's choice, those outside the queue among them.
func pullConsumer(cluster *Cluster) Outcome {
	topic := cluster.createTopic("pull_consumer", 1, readWrite)
	sender := cluster.producer("pull_consumer")
	for i := 0; i < each; i++ {
		_, err := sender.SendSync(context.Background(), message(topic, fmt.Sprintf("pulled-%02d", i)))
		must(err)
	}
	must(sender.Shutdown())
	reader, err := rocketmq.NewPullConsumer(cluster.consumerOptions("pull_consumer", nil)...)
	must(err)
	must(reader.Subscribe(topic, tag("*")))
	must(reader.Start())
	queue := &primitive.MessageQueue{Topic: topic, BrokerName: "broker-a", QueueId: 0}
	outcome := Outcome{}
	pull := func(name string, queue *primitive.MessageQueue, offset int64, count int) {
		result, err := reader.PullFrom(context.Background(), queue, offset, count)
		if err != nil {
			outcome[name] = cluster.remark(err)
			return
		}
		found := len(result.GetMessageExts())
		outcome[name] = fmt.Sprintf("status %d, %d messages, next %d of %d..%d", result.Status, found, result.NextBeginOffset,
			result.MinOffset, result.MaxOffset)
	}
	pull("all", queue, 0, 32)
	pull("three", queue, 5, 3)
	pull("behind the end", queue, each+7, 32)
	must(reader.Shutdown())
	return outcome
}
