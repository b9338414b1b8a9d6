"""The Spark source of RaptorMQ: `spark.read.format("raptormq")` and `spark.readStream.format("raptormq")`."""
