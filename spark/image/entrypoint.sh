#!/bin/bash
# Entrypoint that Spark on Kubernetes expects: `driver ARGS...` or `executor`; other commands are executed unchanged.
# Spark sets the variables on its pods (BasicDriverFeatureStep and BasicExecutorFeatureStep).
set -euo pipefail

case "${1:-}" in
driver)
  shift
  exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
    --deploy-mode client "$@"
  ;;
executor)
  # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ... contain one option each, which may have spaces.
  options=()
  for ((number = 0; ; number++)); do
    name="SPARK_JAVA_OPT_$number"
    [[ -v $name ]] || break
    options+=("${!name}")
  done
  exec tini -s -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
"")
  echo "entrypoint: say driver, executor or a command" >&2
  exit 2
  ;;
*)
  exec tini -s -- "$@"
  ;;
esac
