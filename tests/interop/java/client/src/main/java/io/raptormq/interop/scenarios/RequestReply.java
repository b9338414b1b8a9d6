package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A request that is answered, one that nobody answers, and replies that nobody waits for. */
@SuppressWarnings("deprecation") // offsets by the producer: no other client is needed here
final class RequestReply implements Scenario {
    private static final long PATIENCE_MS = 30_000;
    private static final long SHORT_MS = 3_000; // the question itself has to be stored in that time

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("requests", 2);
        Map<String, Object> outcome = new TreeMap<>();
        CompletableFuture<MessageExt> seen = new CompletableFuture<>();
        CompletableFuture<SendResult> replied = new CompletableFuture<>();
        DefaultMQProducer replier = cluster.producer("requests_replier");
        DefaultMQPushConsumer responder = responder(cluster, topic, replier, seen, replied);
        DefaultMQProducer requester = cluster.producer("requests");
        MessageQueue queue = requester.fetchPublishMessageQueues(topic).get(1);
        Call question = () -> outcome.put("reply", describe((MessageExt) request(requester, topic, "question", queue, PATIENCE_MS)));
        outcome.put("question", outcomeOf(question));
        outcome.put("seen", new TreeSet<>(seen.get().getProperties().keySet()));
        outcome.put("answer to the replier", replied.get(PATIENCE_MS, TimeUnit.MILLISECONDS).getSendStatus().toString());
        outcome.put("nobody answers", outcomeOf(() -> request(requester, topic, "ignored", queue, SHORT_MS)));

        MessageQueue kept = new MessageQueue(MessageUtil.createReplyMessage(seen.get(), new byte[1]).getTopic(), reply(replied), 0);
        long before = replier.maxOffset(kept);
        requester.shutdown();
        outcome.put("requester gone", gone(outcomeOf(() -> replier.send(answer(seen.get())))));
        Message toNobody = answer(seen.get());
        MessageAccessor.clearProperty(toNobody, MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT);
        outcome.put("no requester named", outcomeOf(() -> replier.send(toNobody)));
        outcome.put("replies are kept", replier.maxOffset(kept) > before);
        responder.shutdown();
        replier.shutdown();
        return outcome;
    }

    private static String reply(CompletableFuture<SendResult> replied) throws Exception {
        return replied.get().getMessageQueue().getBrokerName();
    }

    private static Message answer(MessageExt question) throws Exception {
        return MessageUtil.createReplyMessage(question, ("answer to " + Inbox.text(question)).getBytes());
    }

    private static DefaultMQPushConsumer responder(
            Cluster cluster, String topic, DefaultMQProducer replier, CompletableFuture<MessageExt> seen, CompletableFuture<SendResult> replied)
            throws Exception {
        DefaultMQPushConsumer consumer = cluster.pushConsumer("requests_responder");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET); // also of what is sent while it starts
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (Inbox.text(message).startsWith("question")) {
                    seen.complete(message);
                    try {
                        replied.complete(replier.send(answer(message)));
                    } catch (Exception error) {
                        replied.completeExceptionally(error);
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** By a callback and to a queue: other requests of this client end as soon as they are stored. */
    private static Message request(DefaultMQProducer requester, String topic, String body, MessageQueue queue, long timeoutMs)
            throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        RequestCallback callback = new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                reply.complete(message);
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        };
        requester.request(Texts.message(topic, body), queue, callback, timeoutMs);
        try {
            return reply.get(PATIENCE_MS * 2, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            throw (Exception) failed.getCause();
        }
    }

    private static Map<String, Object> describe(MessageExt reply) {
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("body", Inbox.text(reply));
        outcome.put("properties", new TreeSet<>(reply.getProperties().keySet()));
        outcome.put("queue", reply.getQueueId());
        outcome.put("hosts", List.of(reply.getBornHost() != null, reply.getStoreHost() != null));
        outcome.put("stored after it was born", reply.getStoreTimestamp() >= reply.getBornTimestamp());
        return outcome;
    }

    /** The id of the client in the remark differs from run to run. */
    private static String gone(String outcome) {
        return outcome.replaceAll("<.*>", "<client>");
    }

    private interface Call {
        void run() throws Exception;
    }

    private static String outcomeOf(Call call) throws Exception {
        try {
            call.run();
            return "success";
        } catch (RequestTimeoutException late) {
            return "timeout " + late.getResponseCode();
        } catch (MQClientException failed) {
            MQBrokerException refused = (MQBrokerException) failed.getCause();
            return refused.getResponseCode() + " " + refused.getErrorMessage();
        }
    }
}
