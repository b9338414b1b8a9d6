package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// requestReply: a producer asks, a consumer answers; a question that nobody answers ends by its time.
func requestReply(cluster *Cluster) Outcome {
	topic := cluster.createTopic("request_reply", 2, readWrite)
	silent := cluster.createTopic("request_reply_silent", 1, readWrite)
	replier := cluster.producer("request_reply_replier")
	answers := make(chan string, 10)
	reader, inbox := cluster.consumer("request_reply", topic, tag("*"), func(_ context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
		reply, err := consumer.CreateReplyMessage(one, nil)
		must(err)
		reply.Body = []byte("answer to " + string(one.Body)) // the client, in version 2.1.2, makes no use of its second argument
		// This client's producer tells the broker of itself a second after its start; before, it cannot be answered.
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			result, err := replier.SendSync(context.Background(), reply)
			if err == nil {
				answers <- fmt.Sprint(result.Status)
				return consumer.ConsumeSuccess
			}
			if time.Now().After(deadline) {
				answers <- cluster.remark(err)
				return consumer.ConsumeSuccess
			}
		}
	})
	requester := cluster.producer("request_reply_requester")
	reply, err := requester.Request(context.Background(), 20*time.Second, message(topic, "question"))
	must(err)
	outcome := Outcome{"reply": string(reply.Body), "answer to the replier": <-answers, "asked": len(bodies(inbox.all()))}
	_, err = requester.Request(context.Background(), 3*time.Second, message(silent, "question"))
	outcome["nobody answers"] = cluster.remark(err)
	must(reader.Shutdown())
	must(requester.Shutdown())
	must(replier.Shutdown())
	return outcome
}
